"""`memes view` and `memes run --view` show runs, and their processes end as expected."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

import memes
from memes.commands import view
from memes.commands.main import main
from memes.view import browser
from page_server import eventually, served
from signals import interruptible

OLD = Path(__file__).parents[1] / "data/run-0.1"


@pytest.fixture
def shown(monkeypatch):
    """Record the calls that would show a page, instead of showing it."""
    found = []
    monkeypatch.setattr(view, "browse", lambda *what, **how: found.append((what, how)))
    return found


def test_view_accepts_several_runs_and_a_custom_task(shown):
    assert main(["view", "one", "two", "--port", "9000", "--task", "examples/custom_task.py:task"]) == 0
    (((paths, rebuild), how),) = shown
    assert (paths, how) == (("one", "two"), {"port": 9000})
    saved = memes.load_run(OLD)
    with pytest.raises(memes.UsageError, match=r"task 'examples/custom_task.py:task' has 20"):
        rebuild(saved)


def test_code_named_in_a_folder_is_not_executed(shown):
    assert main(["view", "one"]) == 0
    (((_, rebuild), _),) = shown
    saved = memes.load_run(OLD)
    with pytest.raises(memes.UsageError, match="if you trust it, name it with --task"):
        rebuild(saved._replace(config=replace(saved.config, task="evil.py:task")))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["view"], "RUN is missing: memes view RUN... [OPTIONS]"),
        (["veiw", "run"], "unknown command 'veiw': did you mean 'view'"),
        (["view", str(OLD), "--port", "0"], "port must lie in 1 ... 65535, got 0"),
    ],
)
def test_wrong_use_gives_an_error_message(words, sentence, capsys):
    pytest.importorskip("viser", reason="the extra 'view' is not installed")
    assert main(words) == 2
    assert sentence in capsys.readouterr().err


def test_a_page_ends_with_the_process_of_its_run(shown, monkeypatch):
    for parent, continues in ((os.getppid(), True), (os.getpid(), False)):
        monkeypatch.setattr(sys, "argv", ["-c", "folder", "", str(parent)])
        view.beside()
        _, how = shown[-1]
        assert how["going"]() is continues


def test_without_viser_an_error_message_names_its_extra(monkeypatch, capsys):
    monkeypatch.setattr(browser.importlib.util, "find_spec", lambda name: None)
    for words in (["view", str(OLD)], ["run", "arm", "--view", "--out", "nowhere"]):
        assert main(words) == 2
        assert "needs the extra view" in capsys.readouterr().err
    assert not Path("nowhere").exists()


SMALL = "--joints 4 --lanes 2 --samples 4 --generations 2 --resolution 3 3 --no-figures-draw"


def test_the_page_of_a_run_stays_until_ctrl_c(tmp_path):
    pytest.importorskip("viser", reason="the extra 'view' is not installed")
    command = ["run", "arm", *SMALL.split(), "--out", str(tmp_path / "run"), "--quiet", "--view"]
    with subprocess.Popen(
        interruptible("-m", "memes", *command), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            printed = ""
            while not ("http://" in printed and "the page stays" in printed):
                line = process.stdout.readline()
                assert line, printed
                printed += line
            url = re.search(r"http://\S+", printed)[0]
            assert opens(url)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
            assert not opens(url)
        finally:
            process.kill()
    assert memes.load_run(tmp_path / "run").generations == 2


def opens(url):
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            return page.status == 200
    except urllib.error.URLError:
        return False


def test_a_page_continues_after_any_message_to_its_controls(monkeypatch):
    viser = pytest.importorskip("viser", reason="the extra 'view' is not installed")
    import msgspec
    from websockets.sync.client import connect

    servers, made = [], viser.ViserServer.__init__
    monkeypatch.setattr(
        viser.ViserServer, "__init__", lambda self, **how: servers.append(self) or made(self, **how)
    )
    with served(OLD) as url:
        subprotocols = [f"viser-v{viser.__version__}"]
        with connect(url.replace("http:", "ws:"), subprotocols=subprotocols, max_size=None) as websocket:

            def send(kind, **fields):
                websocket.send(msgspec.msgpack.encode({"type": kind, **fields}))

            (server,) = servers
            controls = server.gui._gui_input_handle_from_uuid
            for uuid in list(controls):
                for value in (float("nan"), "nan", "never", -1e9, None, [], True):
                    send("GuiUpdateMessage", uuid=uuid, updates={"value": value})
            ray = {"ray_origin": [0.0, -5, 1], "ray_direction": [0.0, 0, 1], "screen_pos": [0, 0]}
            aside = {"name": "/archive-cells", "instance_index": None, "modifier": None, "owner": ""}
            send("SceneNodeClickMessage", **ray, **aside)
            for uuid in list(server.gui._command_handle_from_uuid):
                send("CommandTriggerMessage", uuid=uuid)
            (by,) = (each for each in controls.values() if each.label == "colour by")
            send("GuiUpdateMessage", uuid=by._impl.uuid, updates={"value": "lane"})
            assert eventually(lambda: by.value == "lane")
        assert opens(url)
