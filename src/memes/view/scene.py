"""A part of the page that shows one moving elite, drawn by viser."""

from __future__ import annotations

from typing import Any

import numpy as np

from memes.view.drawings import Drawing

SIZE = 1.7  # size of the drawing, in the units of the page
WALL, LINE, WAY = (150, 155, 170), (255, 196, 61), (90, 200, 255)
FLOOR, TILES = (44, 47, 56), (140, 147, 168)

# `TILE` is the side length of the floor's tiles. Lines and pictures have no floor, and are drawn at the
# height `RAISED`.
TILE = SIZE / 7
RAISED = 0.4


class EliteScene:
    """A part of the page that shows one elite.

    Args:
        scene: Scene of a viser server.
        name: Unique prefix for the nodes of this part.
        place: Position on the page, [3].
        model: The `MjModel` of the task; None for tasks without a robot.
    """

    def __init__(self, scene: Any, name: str, place: np.ndarray, model: Any) -> None:
        self._scene, self._name, self._model = scene, name, model
        raised = np.array([0.0, 0.0, RAISED if model is None else 0.0])
        self._frame = scene.add_frame(name, show_axes=False, position=place + raised)
        self._bodies: dict[int, Any] = {}
        self._shown: list[Any] = []
        self._drawing: Drawing | None = None
        self._dot: Any = None
        self._scale, self._middle = 1.0, np.zeros(3)
        self._data: Any = None
        if model is not None:
            self._add_robot(model)

    def show(self, drawing: Drawing | None, label: str = "") -> None:
        """Show an elite at the start of its episode, or clear the scene if `drawing` is None."""
        for node in self._shown:
            node.remove()
        self._shown, self._dot, self._drawing = [], None, drawing
        self._frame.visible = drawing is not None
        if drawing is None:
            return
        head = (0.0, 0.0, SIZE * (1.06 if self._model is None else 0.68))
        self._shown.append(self._scene.add_label(f"{self._name}/label", label, position=head))
        if drawing.picture is not None:
            self._shown.append(
                add_upright(self._scene, f"{self._name}/picture", drawing.picture, SIZE, SIZE / 2)
            )
        elif drawing.lines:
            self._add_lines(drawing)
        self.move(0)

    def move(self, step: int) -> None:
        """Show the elite at a time step."""
        drawing = self._drawing
        if drawing is None:
            return
        if drawing.episode is not None:
            self._place_robot(drawing.episode.qpos[min(step, drawing.steps - 1)])
        elif drawing.path is not None and self._dot is not None:
            self._dot.position = self._scaled(drawing.path[min(step, drawing.steps - 1)])

    def _scaled(self, points: np.ndarray) -> np.ndarray:
        return np.asarray((points - self._middle) * self._scale + np.array([0, 0, SIZE / 2]))

    def _add_lines(self, drawing: Drawing) -> None:
        every = np.concatenate(drawing.lines)
        low, high = every.min(axis=0), every.max(axis=0)
        self._scale, self._middle = 0.9 * SIZE / max(float((high - low).max()), 1e-9), (low + high) / 2
        for i, line in enumerate(drawing.lines):
            points = self._scaled(line)
            own = i == drawing.own
            self._shown.append(
                self._scene.add_line_segments(
                    f"{self._name}/line-{i}",
                    np.stack([points[:-1], points[1:]], axis=1),
                    (LINE if drawing.path is None else WAY) if own else WALL,
                    thickness=4.0 if own else 2.0,
                    thickness_units="screen",
                )
            )
        if drawing.path is not None:
            self._dot = self._scene.add_icosphere(f"{self._name}/dot", radius=0.03, color=LINE)
            self._shown.append(self._dot)

    def _add_robot(self, model: Any) -> None:
        """Add the shapes of all bodies, scaled so that the robot fills the scene."""
        import mujoco

        from memes.view.geoms import body_mesh

        self._data = data = mujoco.MjData(model)
        mujoco.mj_kinematics(model, data)
        moving = model.geom_bodyid > 0
        reach = np.linalg.norm(data.geom_xpos[moving] - data.xpos[1], axis=1) + model.geom_rbound[moving]
        self._scale = scale = 0.46 * SIZE / float(reach.max(initial=1e-3))
        size = (SIZE, SIZE, 0.02)
        self._scene.add_box(f"{self._name}/floor", FLOOR, size, position=(0, 0, -0.02))
        self._tiles = self._scene.add_line_segments(
            f"{self._name}/tiles",
            _lattice(TILE * np.arange(-3, 4)),
            TILES,
            thickness=1.5,
            thickness_units="screen",
        )
        for body in range(model.nbody):
            shown = (model.geom_bodyid == body) & (model.geom_rgba[:, 3] > 0) & (model.geom_group < 3)
            shown &= model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE
            geoms = np.flatnonzero(shown).tolist()
            if geoms:
                mesh = body_mesh(model, geoms)
                mesh.apply_scale(scale)
                self._bodies[body] = self._scene.add_mesh_trimesh(f"{self._name}/body-{body}", mesh)

    def _place_robot(self, qpos: np.ndarray) -> None:
        """Move the bodies so that the robot stays in the centre, and move the pattern of the floor."""
        import mujoco

        self._data.qpos[:] = qpos
        mujoco.mj_kinematics(self._model, self._data)
        place = np.array([*self._data.xpos[1, :2], 0.0])
        self._tiles.position = (TILE / 2 - np.mod(place * self._scale, TILE)) * (1, 1, 0)
        for body, node in self._bodies.items():
            at = (self._data.xpos[body] - place) * self._scale
            node.position, node.wxyz = at, self._data.xquat[body]
            if body == 0:  # hide the walls, which belong to body 0, if they are far away
                node.visible = bool(np.abs(at[:2]).max() < 4 * SIZE)


def _lattice(lines: np.ndarray) -> np.ndarray:
    """Return the segments [2 n, 2, 3] of a square lattice on the ground, with n lines per direction."""
    ends = np.array([lines[0], lines[-1]])
    across = np.stack(np.broadcast_arrays(ends[None, :], lines[:, None], 0.0), axis=-1)
    return np.concatenate([across, across[..., [1, 0, 2]]])


def add_upright(
    scene: Any, name: str, image: np.ndarray, width: float, height_of_middle: float, **options: Any
) -> Any:
    """Add an upright picture that faces the viewer, who looks along the y axis."""
    height = width * image.shape[0] / image.shape[1]
    return scene.add_image(
        name, image, width, height, format="png", cast_shadow=False, receive_shadow=False,
        wxyz=UPRIGHT, position=options.pop("position", (0.0, 0.0, height_of_middle)), **options,
    )  # fmt: skip


UPRIGHT = (np.sqrt(0.5), -np.sqrt(0.5), 0.0, 0.0)
