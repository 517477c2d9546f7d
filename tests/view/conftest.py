import pytest

from memes.commands.main import main


@pytest.fixture(scope="session")
def quick():
    """Options of a very short run of the ant."""
    flags = "--scale laptop --steps 20 --lanes 2 --samples 4 --generations 2 --reevaluate-every 0"
    return flags.split()


@pytest.fixture(scope="session")
def ant_run(quick, tmp_path_factory):
    """The folder of a small run of the ant."""
    folder = tmp_path_factory.mktemp("runs") / "ant"
    assert main(["run", "ant", *quick, "--out", str(folder), "--quiet"]) == 0
    return folder
