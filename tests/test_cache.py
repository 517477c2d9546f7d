"""Cached libraries are loaded only if they are complete and belong to the user."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import memes
from memes import physics
from memes.kernels import cxx
from memes.kernels.cache import cached, folder
from memes.kernels.cxx import compiler, loaded
from memes.runner.compilation_cache import compiled_programs

HOPPER = str(Path(__file__).parent / "physics" / "models" / "hopper.xml")
SOURCE = 'extern "C" int answer() { return 42; }'
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
needs_compiler = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """Use a separate cache folder, and check that nothing is created in the current folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    yield tmp_path / "home"
    assert list(Path().iterdir()) == []


def writes(content=b"code", log=None):
    def build(file):
        if log is not None:
            log.append(file)
        file.write_bytes(content)

    return build


def entries(base):
    return [file for file in base.rglob("memes/native/*") if file.is_file()]


def test_an_entry_is_built_only_once(home):
    built = []
    first, second = (cached("name.so", writes(log=built)) for _ in range(2))
    assert first == second
    assert first.read_bytes() == b"code"
    assert first.suffix == ".so"
    assert len(built) == 1
    assert entries(home) == [first]


@pytest.mark.parametrize("value", ["", ".", "cache", "./cache"])
def test_a_cache_folder_without_an_absolute_path_is_ignored(value, home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert cached("name.so", writes()).is_relative_to(home / ".cache")
    assert compiled_programs().is_relative_to(home / ".cache")


@pytest.mark.parametrize("value", ["", "cache"])
def test_a_home_folder_without_an_absolute_path_is_ignored(value, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", value)
    if value:
        assert folder("native") is None
        assert compiled_programs() is None
        assert cached("name.so", writes()).read_bytes() == b"code"
    else:
        assert folder("native") != Path("memes/native").absolute()


def test_only_the_owner_can_access_the_folders(home):
    before = os.umask(0)
    try:
        cached("name.so", writes())
        compiled_programs()
    finally:
        os.umask(before)
    for name in ("memes", "memes/native", "memes/xla"):
        assert stat.S_IMODE((home / ".cache" / name).stat().st_mode) == 0o700


def test_a_folder_that_others_can_write_to_becomes_private(home):
    own = folder("native")
    own.chmod(0o777)
    assert folder("native") == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@as_root
def test_files_of_another_user_are_not_loaded(home):
    planted = cached("name.so", writes(b"evil"))
    os.chown(planted, 12345, 12345)
    assert cached("name.so", writes()).read_bytes() == b"code"


@as_root
@pytest.mark.parametrize("part", ["memes", "memes/native"])
def test_a_folder_of_another_user_is_not_used(part, home):
    planted = cached("name.so", writes(b"evil"))
    os.chown(home / ".cache" / part, 12345, 12345)
    found = cached("name.so", writes())
    assert found.read_bytes() == b"code"
    assert not found.is_relative_to(home)
    assert planted.read_bytes() == b"evil"


@as_root
def test_a_folder_that_others_have_written_into_is_not_used(home):
    own = compiled_programs()
    own.chmod(0o777)
    (own / "planted").touch()
    os.chown(own / "planted", 12345, 12345)
    assert compiled_programs() is None


def test_a_cache_in_a_folder_that_everybody_can_change_is_not_used(tmp_path, monkeypatch):
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(shared))
    shared.chmod(0o777)
    assert folder("native") is None
    shared.chmod(0o1777)  # the mode of /tmp
    assert folder("native") == shared / "memes" / "native"


@pytest.mark.parametrize(
    "damage",
    [lambda f: f.write_bytes(b"cod"), lambda f: f.write_bytes(b""), lambda f: os.truncate(f, 9999)],
)
def test_a_damaged_entry_is_built_again(damage, home):
    first = cached("name.so", writes())
    damage(first)
    built = []
    assert cached("name.so", writes(log=built)).read_bytes() == b"code"
    assert len(built) == 1
    assert len(entries(home)) == 1


def test_a_symbolic_link_is_not_used_as_an_entry(home, tmp_path):
    first = cached("name.so", writes())
    first.rename(tmp_path / "elsewhere.so")
    first.symlink_to(tmp_path / "elsewhere.so")
    again = cached("name.so", writes())
    assert not again.is_symlink()
    assert again.read_bytes() == b"code"


def test_entries_are_synced_to_disk_before_they_appear(home, monkeypatch):
    synced, moved = [], []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino) or fsync(fd))

    def move(source, target):
        assert os.stat(source).st_ino in synced
        moved.append(Path(source).parent)
        replace(source, target)

    monkeypatch.setattr(os, "replace", move)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: cached(f"name{i % 2}.so", writes()), range(8)))
    assert len(set(moved)) == len(moved)  # every build has its own folder
    assert len(entries(home)) == 2


@needs_compiler
def test_a_damaged_library_is_compiled_again(home):
    assert loaded(SOURCE, "a test").answer() == 42
    (entry,) = entries(home)
    damaged = entry.with_suffix(".cut")
    damaged.write_bytes(entry.read_bytes()[:1000])  # loading this file would fail or crash the process
    damaged.replace(entry)
    assert loaded(SOURCE, "a test").answer() == 42


BROKEN = {
    "false": "#!/bin/sh\nexit 1\n",
    "only a version": '#!/bin/sh\n[ "$1" = --version ] && echo 1.0\n',
    "no library": '#!/bin/sh\n[ "$1" = --version ] && echo 1.0; exit 0\n',
    "no program": "\x7fELF",
}


@pytest.fixture(params=BROKEN)
def broken_compiler(request, tmp_path, monkeypatch):
    file = tmp_path / "c++"
    file.write_text(BROKEN[request.param])
    file.chmod(0o755)
    monkeypatch.setenv("CXX", str(file))
    return file


def test_a_failing_compiler_gives_an_error_message(broken_compiler):
    with pytest.raises(memes.UsageError, match=r"backend 'native': the compiler '.*c\+\+' fail"):
        physics.compile(HOPPER, backend="native")


def test_physics_falls_back_to_xla_with_a_warning_if_the_compiler_fails(broken_compiler):
    cxx.native_target.cache_clear()
    with pytest.warns(UserWarning, match="memes.physics runs in plain XLA.* the compiler '.*' fail"):
        engine = physics.compile(HOPPER)
    assert engine.backend == "xla"


def test_physics_falls_back_to_xla_with_a_warning_without_a_compiler(monkeypatch):
    monkeypatch.setattr(cxx, "compiler", lambda: None)
    cxx.native_target.cache_clear()
    with pytest.warns(UserWarning, match="several times slower: .* needs a C\\+\\+ compiler"):
        assert physics.compile(HOPPER).backend == "xla"


def test_the_cuda_handler_is_unavailable_if_it_cannot_be_compiled(broken_compiler, monkeypatch):
    from memes.kernels import cuda

    monkeypatch.setattr(cuda, "devices", lambda: ("a GPU",))
    monkeypatch.setattr(cuda, "nvrtc", lambda: "NVRTC")
    cuda.missing.cache_clear()
    cuda._handler.cache_clear()
    assert "the compiler" in cuda.missing()
    cuda.missing.cache_clear()


@needs_compiler
def test_a_library_that_cannot_be_loaded_gives_an_error_message(monkeypatch):
    monkeypatch.setattr(cxx, "cached", lambda name, build: Path("/dev/null"))
    with pytest.raises(memes.UsageError, match="a test: "):
        loaded(SOURCE, "a test")


NAMELESS_USER = """
import os
import docstring_parser, memes.commands.list, memes.options.flags
from memes.runner.compilation_cache import compiled_programs
from memes.commands.main import main
from memes.kernels.cache import cached, folder
if os.geteuid() == 0:  # drop privileges after the imports, because other users may not read these files
    os.setgroups([])
    os.setgid(54321)
    os.setuid(54321)
print(folder("native"), compiled_programs())
print(cached("name.so", lambda file: file.write_bytes(b"code")).read_bytes())
print(main(["list"]))
"""


def as_nameless_user(**environment):
    """Build a cache entry and run `memes list` as a user without a user name.

    Returns the lines of stdout, and stderr.
    """
    environment |= {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", NAMELESS_USER], env=environment, capture_output=True, text=True, cwd="/"
    )
    return done.stdout.splitlines(), done.stderr


def test_commands_work_without_access_to_the_cache(tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o000)
    (first, second, *_, last), errors = as_nameless_user(XDG_CACHE_HOME=str(locked))
    locked.chmod(0o700)
    assert (first, second, last, errors) == ("None None", "b'code'", "0", "")


@as_root
def test_commands_work_without_a_cache_for_a_user_without_a_home():
    (first, second, *_, last), errors = as_nameless_user()
    assert (first, second, last, errors) == ("None None", "b'code'", "0", "")
