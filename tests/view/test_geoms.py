"""Meshes of geoms have the same shape, position and colour as in MuJoCo."""

import numpy as np
import pytest

pytest.importorskip("mujoco", reason="the extra 'robots' is not installed")
pytest.importorskip("trimesh", reason="the extra 'view' is not installed")
import mujoco

from memes.view.geoms import body_mesh, colour_of

XML = """
<mujoco>
  <asset>
    <mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1  1 1 0"/>
    <hfield name="hills" nrow="3" ncol="4" size="2 1 .5 .1" elevation="0 0 0 0  0 1 .5 0  0 0 0 0"/>
    <texture name="half" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="8" height="8"/>
    <material name="green" rgba="0 1 0 .5"/>
    <material name="checker" texture="half"/>
  </asset>
  <worldbody>
    <body pos="3 2 1">
      <geom type="sphere" size=".3" pos="1 0 0" rgba="1 0 0 1"/>
      <geom type="capsule" size=".2 .5" euler="30 40 50" pos=".1 .2 .3"/>
      <geom type="cylinder" size=".2 .5" euler="0 90 0" material="green"/>
      <geom type="box" size=".1 .2 .3" euler="0 0 45" pos="0 1 0" material="green" rgba="0 0 1 1"/>
      <geom type="ellipsoid" size=".1 .2 .3" euler="90 0 0" material="checker"/>
      <geom type="mesh" mesh="wedge" pos="0 0 2" euler="10 20 30"/>
    </body>
    <geom type="hfield" hfield="hills" pos="0 0 -1"/>
  </worldbody>
</mujoco>
"""
NAMES = ("hills", "sphere", "capsule", "cylinder", "box", "ellipsoid", "wedge")


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(XML)


@pytest.mark.parametrize("geom", range(7), ids=NAMES)
def test_rays_of_mujoco_hit_the_surface_of_the_mesh(model, geom):
    """Rays that MuJoCo casts from outside hit each geom at points on its mesh.

    The meshes of round shapes are slightly smaller than these shapes.
    """
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    body = model.geom_bodyid[geom]
    mesh = body_mesh(model, [geom])
    points = mesh.triangles_center @ data.xmat[body].reshape(3, 3).T + data.xpos[body]
    normals = mesh.face_normals @ data.xmat[body].reshape(3, 3).T
    if geom == 0:
        assert (normals[:, 2] > 0).all()  # visible from above
    chosen = np.random.default_rng(0).choice(len(points), min(len(points), 60), replace=False)
    model.geom_group[:] = np.where(np.arange(model.ngeom) == geom, 0, 5)
    groups, hit = np.array([1, 0, 0, 0, 0, 0], np.uint8), np.zeros(1, np.int32)
    for point, normal in zip(points[chosen], normals[chosen], strict=True):
        start = point + normal
        distance = mujoco.mj_ray(model, data, start, -normal, groups, 1, -1, hit, None)
        assert hit[0] == geom
        assert distance == pytest.approx(1.0, abs=0.02)


def test_bounding_boxes_agree_with_mujoco(model):
    for geom in range(model.ngeom):
        mesh = body_mesh(model, [geom])
        rotation = np.zeros(9)
        mujoco.mju_quat2Mat(rotation, model.geom_quat[geom])
        own = (mesh.vertices - model.geom_pos[geom]) @ rotation.reshape(3, 3)
        middle, half = model.geom_aabb[geom].reshape(2, 3)
        sides = slice(0, 2) if geom == 0 else slice(0, 3)  # a height field goes down to its base
        np.testing.assert_allclose(own.min(axis=0)[sides], (middle - half)[sides], atol=0.01)
        np.testing.assert_allclose(own.max(axis=0), middle + half, atol=0.01)


def test_colours_come_from_the_geom_or_its_material(model):
    wanted = {"sphere": (1, 0, 0, 1), "capsule": (0.5, 0.5, 0.5, 1), "cylinder": (0, 1, 0, 0.5),
              "box": (0, 0, 1, 1), "ellipsoid": (0.5, 0, 0.5, 1)}  # fmt: skip
    for name, colour in wanted.items():
        geom = NAMES.index(name)
        np.testing.assert_allclose(colour_of(model, geom), colour, atol=0.01)
        vertices = body_mesh(model, [geom]).visual.vertex_colors
        np.testing.assert_allclose(vertices / 255, np.tile(colour, (len(vertices), 1)), atol=0.01)


def test_geoms_of_a_body_are_joined(model):
    one, two = body_mesh(model, [1]), body_mesh(model, [2])
    both = body_mesh(model, [1, 2])
    assert len(both.vertices) == len(one.vertices) + len(two.vertices)
    np.testing.assert_allclose(both.vertices[: len(one.vertices)], one.vertices)
    assert {*map(tuple, both.visual.vertex_colors)} == {(255, 0, 0, 255), (128, 128, 128, 255)}
