"""MuJoCo cameras for robots, and interpolation between recorded states."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

Camera = Literal["auto", "follow", "wide", "above"]
ELEVATION = {"wide": -35.0, "above": -89.9}  # elevation of fixed cameras in degrees
MARGIN = 1.08
LIGHT = np.array([0.36, 0.48, -0.8])  # Direction of the light for models without a light.
DEFAULT = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's default colour of geoms.
GROUND = (0.2, 0.25, 0.3, 1.0)  # Colour that replaces MuJoCo's default colour of planes.


def camera_of(model: Any, states: np.ndarray, camera: Camera, shape: float) -> Any:
    """Make an `MjvCamera` for the positions `states[n, nq]` and for pictures with aspect ratio `shape`.

    - "follow" is the model's first camera that moves with a body. If the model has none, the camera
      follows the first body.
    - "wide" and "above" are fixed cameras that show the whole path and all walls, from the side or from
      above. These cameras change the lights of the model.
    - "auto" is "wide" if there are walls, and otherwise "follow".
    """
    import mujoco

    found = mujoco.MjvCamera()
    mujoco.mjv_defaultFreeCamera(model, found)
    walls = wall_corners(model)
    if camera == "auto":
        camera = "wide" if len(walls) else "follow"
    if camera == "follow":
        fixed = model.cam_mode == mujoco.mjtCamLight.mjCAMLIGHT_FIXED
        follows = np.flatnonzero((model.body_weldid[model.cam_bodyid] > 0) | ~fixed)
        body, reach = extent_of_robot(model)
        if len(follows):
            found.type, found.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, int(follows[0])
        elif body:
            found.type, found.trackbodyid = mujoco.mjtCamera.mjCAMERA_TRACKING, body
            found.azimuth, found.elevation = 60.0, -15.0
            found.distance = MARGIN * reach / math.sin(math.radians(model.vis.global_.fovy) / 2)
        return found
    found.azimuth, found.elevation = 90.0, ELEVATION[camera]  # the x axis points to the right
    points = np.concatenate([walls, _reached(model, states)])
    found.lookat[:] = (points.min(axis=0) + points.max(axis=0)) / 2
    found.distance = _distance(points - found.lookat, found, math.radians(model.vis.global_.fovy), shape)
    model.vis.headlight.specular[:] = 0  # otherwise the floor reflects the light when seen from above
    model.vis.headlight.diffuse[:] *= 0.6
    # Draw shadows and the horizon at least up to the distance of the camera.
    model.stat.extent = max(model.stat.extent, found.distance)
    _still_lights(model, found)
    return found


def _still_lights(model: Any, camera: Any) -> None:
    """Replace lights that follow the robot by fixed lights that illuminate the whole picture.

    Moving lights would cut off the shadows of walls at different places in each picture.
    """
    import mujoco

    for light in np.flatnonzero(model.light_mode != mujoco.mjtCamLight.mjCAMLIGHT_FIXED):
        model.light_mode[light] = mujoco.mjtCamLight.mjCAMLIGHT_FIXED
        model.light_bodyid[light] = 0
        model.light_dir[light] = model.light_dir0[light]
        model.light_pos[light] = camera.lookat - camera.distance * model.light_dir0[light]


def extent_of_robot(model: Any) -> tuple[int, float]:
    """Return the first moving body, and the greatest distance of moving geoms from this body.

    Both are 0 if no body moves.
    """
    import mujoco

    bodies = np.flatnonzero(model.body_weldid > 0)
    if not len(bodies):
        return 0, 0.0
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    mujoco.mj_kinematics(model, data)
    moving = model.body_weldid[model.geom_bodyid] > 0
    away = np.linalg.norm(data.geom_xpos[moving] - data.xpos[bodies[0]], axis=1)
    return int(bodies[0]), float((away + model.geom_rbound[moving]).max(initial=1e-3))


def add_light(model: Any, data: Any, scene: Any) -> None:
    """Add a light above the robot to an `MjvScene`, if the model has none."""
    import mujoco

    if model.nlight:
        return
    body, reach = extent_of_robot(model)
    light = scene.lights[scene.nlight]
    light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    light.dir[:] = LIGHT
    light.pos[:] = data.xpos[body] - 4 * max(reach, 0.1) * LIGHT
    light.ambient[:], light.diffuse[:], light.specular[:] = 0.3, 0.7, 0.2
    light.attenuation[:] = (1, 0, 0)
    light.castshadow, light.headlight, light.intensity = 1, 0, 0.0
    scene.nlight += 1


def darken_ground(model: Any) -> None:
    """Darken planes that have MuJoCo's default colour, so that grey robots stand out."""
    import mujoco

    planes = (model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE) & (model.geom_matid < 0)
    model.geom_rgba[planes & (model.geom_rgba == DEFAULT).all(axis=1)] = GROUND


def wall_corners(model: Any) -> np.ndarray:
    """List the corners [n, 3] of the bounding boxes of all static geoms."""
    import mujoco

    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    flat = [int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD)]
    found = [np.zeros((0, 3))]
    for geom in range(model.ngeom):
        still = model.body_weldid[model.geom_bodyid[geom]] == 0
        if still and model.geom_type[geom] not in flat:
            middle, half = model.geom_aabb[geom].reshape(2, 3)
            corners = middle + half * _signs()
            found.append(data.geom_xpos[geom] + corners @ data.geom_xmat[geom].reshape(3, 3).T)
    return np.concatenate(found)


def between(model: Any, states: np.ndarray, seconds: float, rate: float | None) -> np.ndarray:
    """Interpolate `states[n, nq]`, which are `seconds` apart, to `rate` positions per second.

    If `rate` is None, the states are returned unchanged.
    """
    import mujoco

    if rate is None:
        return states
    last = len(states) - 1
    moments = np.minimum(
        np.arange(math.floor(last * seconds * rate + 1e-6) + 1) / (rate * seconds), last
    )
    shown, velocity = [], np.zeros(model.nv)
    for moment in moments:
        i = min(int(moment), max(last - 1, 0))
        qpos = states[i].astype(float)
        mujoco.mj_differentiatePos(model, velocity, 1.0, qpos, states[min(i + 1, last)].astype(float))
        mujoco.mj_integratePos(model, qpos, velocity, moment - i)
        shown.append(qpos)
    return np.stack(shown)


def _reached(model: Any, states: np.ndarray) -> np.ndarray:
    """Return the corners [8, 3] of the box in which the bodies move."""
    import mujoco

    data = mujoco.MjData(model)
    places = []
    for qpos in states[:: max(1, len(states) // 50)]:
        data.qpos[:] = qpos
        mujoco.mj_kinematics(model, data)
        places.append(data.xpos[1:].copy())
    every = np.concatenate(places)
    room = 0.1 * model.stat.extent
    low, high = every.min(axis=0) - room, every.max(axis=0) + room
    return np.asarray((low + high) / 2 + (high - low) / 2 * _signs())


def _signs() -> np.ndarray:
    return np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T


def _distance(points: np.ndarray, camera: Any, fovy: float, shape: float) -> float:
    """Return the distance at which a camera sees all points [n, 3].

    The coordinates of the points are relative to the target of the camera.
    """
    azimuth, elevation = math.radians(camera.azimuth), math.radians(camera.elevation)
    level = math.cos(elevation)
    forward = np.array([level * math.cos(azimuth), level * math.sin(azimuth), math.sin(elevation)])
    right = np.array([math.sin(azimuth), -math.cos(azimuth), 0.0])
    up, slope = np.cross(right, forward), math.tan(fovy / 2)
    needed = np.maximum(np.abs(points @ up) / slope, np.abs(points @ right) / (slope * shape))
    return float(MARGIN * (needed - points @ forward).max())
