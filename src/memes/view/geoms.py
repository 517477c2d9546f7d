"""Meshes of the shapes of a MuJoCo robot, for display in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import trimesh

from memes.view.cameras import DEFAULT


def body_mesh(model: Any, geoms: Sequence[int]) -> Any:
    """Join the geoms of one body into a mesh in the frame of the body, with one colour per vertex."""
    return trimesh.util.concatenate([_placed(model, geom) for geom in geoms])


def _placed(model: Any, geom: int) -> Any:
    """Make the mesh of a geom in the frame of its body."""
    mesh = _shape(model, geom)
    matrix: Any = trimesh.transformations.quaternion_matrix  # it has no type hints
    placement = matrix(model.geom_quat[geom])
    placement[:3, 3] = model.geom_pos[geom]
    mesh.apply_transform(placement)
    colour = np.round(255 * np.clip(colour_of(model, geom), 0, 1)).astype(np.uint8)
    mesh.visual = trimesh.visual.ColorVisuals(vertex_colors=np.tile(colour, (len(mesh.vertices), 1)))
    return mesh


def _shape(model: Any, geom: int) -> Any:
    """Make the mesh of a geom in the frame of the geom."""
    from mujoco import mjtGeom

    kind, (radius, half, _) = mjtGeom(int(model.geom_type[geom])), model.geom_size[geom]
    if kind == mjtGeom.mjGEOM_SPHERE:
        return trimesh.creation.icosphere(subdivisions=2, radius=radius)
    if kind == mjtGeom.mjGEOM_CAPSULE:
        return trimesh.creation.capsule(radius=radius, height=2 * half)
    if kind == mjtGeom.mjGEOM_CYLINDER:
        return trimesh.creation.cylinder(radius=radius, height=2 * half)
    if kind == mjtGeom.mjGEOM_BOX:
        return trimesh.creation.box(extents=2 * model.geom_size[geom])
    if kind == mjtGeom.mjGEOM_HFIELD:
        return _surface(model, int(model.geom_dataid[geom]))
    if kind in (mjtGeom.mjGEOM_MESH, mjtGeom.mjGEOM_SDF):
        asset = model.mesh(int(model.geom_dataid[geom])).id
        first, count = model.mesh_vertadr[asset], model.mesh_vertnum[asset]
        vertices = model.mesh_vert[first : first + count].astype(float)  # `astype` returns a copy
        first, count = model.mesh_faceadr[asset], model.mesh_facenum[asset]
        return trimesh.Trimesh(vertices, model.mesh_face[first : first + count], process=False)
    ball = trimesh.creation.icosphere(subdivisions=3)
    ball.apply_scale(model.geom_size[geom])  # the geom is an ellipsoid
    return ball


def _surface(model: Any, field: int) -> Any:
    """Make the mesh of a height field."""
    rows, columns, first = (
        int(each[field]) for each in (model.hfield_nrow, model.hfield_ncol, model.hfield_adr)
    )
    x, y, top, _ = model.hfield_size[field]
    height = top * model.hfield_data[first : first + rows * columns]
    across, along = np.meshgrid(np.linspace(-x, x, columns), np.linspace(-y, y, rows))
    corner = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (
        each.ravel() for each in (corner[:-1, :-1], corner[:-1, 1:], corner[1:, 1:], corner[1:, :-1])
    )
    faces = np.concatenate([np.column_stack([a, b, c]), np.column_stack([a, c, d])])
    return trimesh.Trimesh(
        np.column_stack([across.ravel(), along.ravel(), height]), faces, process=False
    )


def colour_of(model: Any, geom: int) -> np.ndarray:
    """Return the colour of a geom as rgba in [0, 1]. A texture is replaced by its mean colour."""
    import mujoco

    rgba, material = np.array(model.geom_rgba[geom]), int(model.geom_matid[geom])
    if material < 0 or not np.allclose(rgba, DEFAULT):
        return rgba
    rgba = np.array(model.mat_rgba[material])
    texture = model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB]
    if texture >= 0:
        channels, first = int(model.tex_nchannel[texture]), model.tex_adr[texture]
        texels = int(model.tex_width[texture]) * int(model.tex_height[texture])
        data = model.tex_data[first : first + texels * channels].reshape(texels, channels)
        rgba[:3] *= data[:, :3].mean(axis=0) / 255
    return rgba
