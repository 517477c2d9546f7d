"""Videos of robots, and their cameras."""

import re
from importlib import resources
from pathlib import Path

import mujoco
import numpy as np
import pytest
from PIL import Image

from memes import UsageError
from memes.errors import install
from memes.view import cameras, pictures, video_formats

SIZE = {"width": 64, "height": 48}


def model_of(name):
    return mujoco.MjModel.from_xml_path(str(resources.files("memes.tasks") / "models" / f"{name}.xml"))


def sliding_states(model, x):
    """Return states of a robot that slides from its start to x in steps of about half a metre."""
    states = np.tile(model.key_qpos[0] if model.nkey else model.qpos0, (int(2 * x) + 1, 1))
    states[:, 0] = np.linspace(0, x, len(states))
    return states


@pytest.fixture
def renderer():
    try:
        pictures.library()
    except UsageError as error:
        pytest.skip(str(error))


def seen_at(camera, points, fovy):
    """Return positions (right, up) of points in a picture, in units of half the height, [n, 2]."""
    a, e = np.radians(camera.azimuth), np.radians(camera.elevation)
    forward = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([np.sin(a), -np.cos(a), 0])
    from_camera = points - (camera.lookat - camera.distance * forward)
    depth = from_camera @ forward
    assert (depth > 0).all()
    beside = np.stack([from_camera @ right, from_camera @ np.cross(right, forward)], axis=1)
    return beside / depth[:, None] / np.tan(np.radians(fovy) / 2)


@pytest.mark.parametrize("shape", [0.5, 1.0, 16 / 9])
@pytest.mark.parametrize("kind", ["wide", "above", "auto"])
def test_a_fixed_camera_shows_the_trap_and_the_whole_path(kind, shape):
    model = model_of("ant_trap")
    states = sliding_states(model, 20.0)
    camera = cameras.camera_of(model, states, kind, shape)
    assert camera.type == mujoco.mjtCamera.mjCAMERA_FREE
    inside = np.concatenate([cameras.wall_corners(model), states[:, :3]])
    seen = np.abs(seen_at(camera, inside, model.vis.global_.fovy)) / [shape, 1]
    assert 0.75 < seen.max() <= 1


def test_wall_corners_are_those_of_fixed_geoms_on_the_floor():
    corners = cameras.wall_corners(model_of("ant_trap"))
    np.testing.assert_allclose(corners.min(axis=0), (6.5, -3.5, 0))
    np.testing.assert_allclose(corners.max(axis=0), (12.5, 3.5, 2))
    assert not len(cameras.wall_corners(model_of("hexapod")))


def test_a_robot_crosses_a_fixed_view_and_stays_in_the_middle_of_a_following_one(renderer):
    model = model_of("hexapod")
    model.geom_rgba[model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE] = (1, 0, 0, 1)
    places = {}
    for camera in ("auto", "wide"):
        shown = pictures.frames(model, sliding_states(model, 8.0)[[0, -1]], **SIZE, camera=camera)
        red = [picture[..., 0].astype(int) - picture[..., 1] > 60 for picture in shown]
        places[camera] = [np.nonzero(picture)[1].mean() for picture in red]
    assert places["auto"] == pytest.approx([32, 32], abs=4)
    left, right = places["wide"]
    assert left < 16
    assert right > 48


def test_the_shadows_of_walls_do_not_move_in_a_fixed_view(renderer):
    model = model_of("ant_trap")
    model.geom_rgba[model.geom_bodyid > 0, 3] = 0  # makes the robot invisible
    here, there = pictures.frames(model, sliding_states(model, 20.0)[[0, -1]], **SIZE, camera="above")
    np.testing.assert_allclose(here.astype(int), there.astype(int), atol=8)


def test_states_are_interpolated_between_steps():
    model = model_of("ant")
    states = sliding_states(model, 2.0)
    states[1, 3:7] = [np.cos(0.4), 0, 0, np.sin(0.4)]  # a rotation by 0.8 about z
    shown = cameras.between(model, states, 0.5, 8.0)
    assert len(shown) == 4 * 4 + 1
    np.testing.assert_allclose(shown[::4], states, atol=1e-9)
    np.testing.assert_allclose(shown[:, 0], np.linspace(0, 2, 17), atol=1e-9)
    np.testing.assert_allclose(shown[2, 3:7], [np.cos(0.2), 0, 0, np.sin(0.2)], atol=1e-9)
    assert cameras.between(model, states, 0.5, None) is states
    assert len(cameras.between(model, states, 0.5, 1.0)) == 3
    assert len(cameras.between(model, states[:1], 0.5, 30.0)) == 1


@pytest.mark.parametrize("suffix", [".gif", ".webp"])
def test_a_video_has_the_pictures_at_the_given_rate(suffix, tmp_path):
    file = tmp_path / f"video{suffix}"
    shown = [np.full((32, 48, 3), 20 * i, np.uint8) for i in range(5)]
    video_formats.write_frames(file, iter(shown), rate=10)
    with Image.open(file) as found:
        assert (found.n_frames, found.size) == (5, (48, 32))
        for i in range(5):
            found.seek(i)
            assert np.abs(np.asarray(found.convert("RGB")).astype(int) - 20 * i).max() <= 4
            assert found.info.get("duration", 100) == 100


@pytest.mark.parametrize("name", ["video.mp4", "-x.mp4", "pipe:1.mp4"])
def test_an_mp4_is_written_by_ffmpeg(name, tmp_path, monkeypatch):
    """ffmpeg must not read the file name as an option or an address."""
    monkeypatch.chdir(tmp_path)
    try:
        video_formats.check_video("out", Path(name))
    except UsageError as error:
        pytest.skip(str(error))
    pictures = (np.zeros((32, 48, 3), np.uint8) for _ in range(5))
    video_formats.write_frames(Path(name), pictures, rate=10)
    assert Path(name).read_bytes()[4:8] == b"ftyp"


@pytest.mark.parametrize("name", ["figures/archive.png", "run.png"])
def test_a_picture_does_not_replace_a_figure_of_a_run(name, tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / name).write_text("")
    if name == "run.png":
        video_formats.check_file("sheet", tmp_path / name, ".png")
    else:
        with pytest.raises(UsageError, match="sheet must not be a file of a run, but"):
            video_formats.check_file("sheet", tmp_path / name, ".png")


def test_a_failing_encoder_gives_an_error_message(monkeypatch):
    monkeypatch.setattr(video_formats, "_ffmpeg", lambda: "false")
    with pytest.raises(UsageError, match=r"ffmpeg could not write 'video.mp4'"):
        video_formats.write_frames(Path("video.mp4"), [np.zeros((480, 640, 3), np.uint8)] * 9, rate=20)


def test_a_video_without_an_encoder_names_the_extra(monkeypatch):
    monkeypatch.setattr(video_formats, "_ffmpeg", lambda: None)
    with pytest.raises(UsageError, match="video: .mp4 needs .* " + re.escape(install("view"))):
        video_formats.check_video("video", Path("a.mp4"))
    video_formats.check_video("video", Path("a.webp"))
