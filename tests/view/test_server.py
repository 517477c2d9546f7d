"""Only the local user can access the page, and no malformed message crashes the server."""

import http.client
import math
import re
import socket
import time
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest

import memes

pytest.importorskip("viser", reason="the extra 'view' is not installed")
import msgspec
import viser
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.sync.client import connect

from memes.view import browser, server
from memes.view.runs import Runs
from memes.view.server import page
from page_server import eventually

OLD = Path(__file__).parents[1] / "data/run-0.1"
PROTOCOL = [f"viser-v{viser.__version__}"]


class Shown:
    """A page with one control of each kind that `memes` uses."""

    def __init__(self, served):
        self.server, self.url = served
        gui = served.server.gui
        self.slider = gui.add_slider("slider", min=0.0, max=3.0, step=0.1, initial_value=1.0)
        self.checkbox = gui.add_checkbox("checkbox", initial_value=True)
        self.dropdown = gui.add_dropdown("dropdown", ("1", "2"), initial_value="1")
        self.colour = gui.add_rgb("colour", (1, 2, 3))

    @property
    def address(self):
        return urlsplit(self.url)

    def values(self):
        return self.slider.value, self.checkbox.value, self.dropdown.value, self.colour.value

    def uuid(self, name):
        return getattr(self, name)._impl.uuid


@pytest.fixture(scope="module")
def shown():
    with page(title="a test", port=8417) as served:
        yield Shown(served)


def http_status(shown, path, **headers):
    """Return the status code of an HTTP request."""
    connection = http.client.HTTPConnection(shown.address.hostname, shown.address.port, timeout=10)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in ({"Host": shown.address.netloc} | headers).items():
            connection.putheader(name, value)
        connection.endheaders()
        return connection.getresponse().status
    finally:
        connection.close()


def socket_of(shown, *, path=None, host=None, origin=None):
    """Open a websocket at the address of the page, as viser's client does."""
    path = shown.address.path if path is None else path
    return connect(
        f"ws://{host or shown.address.netloc}{path}",
        sock=socket.create_connection((shown.address.hostname, shown.address.port), timeout=10),
        origin=origin,
        subprotocols=PROTOCOL,
        max_size=None,
    )


# --------------------------------------------------------------------------------------- access


def test_the_address_opens_the_page_and_its_websocket(shown):
    with urllib.request.urlopen(shown.url) as answer:
        assert b"<title>Viser</title>" in answer.read()
        assert answer.headers["Referrer-Policy"] == "no-referrer"
    own = f"http://{shown.address.netloc}"
    with socket_of(shown, origin=own) as websocket:
        assert len(websocket.recv(timeout=10)) > 100


def test_a_tunnel_of_the_user_may_change_the_port(shown):
    assert http_status(shown, shown.address.path, Host="localhost", Origin="http://localhost") == 200
    assert (
        http_status(shown, shown.address.path, Host="localhost:9999", Origin="http://localhost:9999")
        == 200
    )
    with socket_of(shown, host="localhost:9999", origin="http://localhost:9999") as websocket:
        assert websocket.recv(timeout=10)


@pytest.mark.parametrize(
    "path", ["/", "", "/x", "//TOKEN", "/x/TOKEN", "/TOKENx", "/TOKE", "/?TOKEN", "/\xff"]
)
def test_every_request_without_the_token_is_refused(shown, path):
    token = shown.address.path[1:]
    path = path.replace("TOKEN", token).replace("TOKE", token[:-1])
    if path and path.isascii():
        assert http_status(shown, path) == 403
        with pytest.raises(InvalidStatus) as error:
            socket_of(shown, path=path)
        assert error.value.response.status_code == 403
    else:
        with pytest.raises((InvalidHandshake, UnicodeError)):
            socket_of(shown, path=path)


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:8417",
        "http://127.0.0.1",
        "https://127.0.0.1:8417",
        "",
    ],
)
def test_pages_of_other_origins_are_refused_even_with_the_token(shown, origin):
    assert http_status(shown, shown.address.path, Origin=origin) == 403
    with pytest.raises(InvalidStatus):
        socket_of(shown, origin=origin or "http://")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8417", "127.0.0.1.evil.example:8417", "x@y:1",
        "127.0.0.1:80@evil.example", "localhost:", "localhost:1:2", "127.0.0.1:8o", "localhost:123456",
    ],
)  # fmt: skip
def test_other_host_names_are_refused_even_with_the_token(shown, host):
    assert http_status(shown, shown.address.path, Host=host) == 403
    assert http_status(shown, shown.address.path, Host=host, Origin=f"http://{host}") == 403
    if host.startswith(("evil", "127.0.0.1.evil")):
        with pytest.raises(InvalidStatus):
            socket_of(shown, host=host, origin=f"http://{host}")


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/..%2fx"]
)
def test_paths_outside_the_page_are_not_found(shown, path):
    up = "/.." * 20
    assert http_status(shown, f"{shown.address.path}{path}") == 404
    assert http_status(shown, f"{shown.address.path}{up}{path}") == 404


@pytest.mark.parametrize("path", [b"/\xff\xfe", b"/" + b"x" * 7000, b"/a%00b", b"/\xe4\x80"])
def test_unusual_paths_are_refused_without_the_token_and_not_found_with_it(shown, path):
    for token, status in ((b"", b" 403 "), (shown.address.path.encode(), b" 404 ")):
        with socket.create_connection((shown.address.hostname, shown.address.port), timeout=10) as link:
            link.sendall(b"GET " + token + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert status in link.recv(100).partition(b"\r\n")[0]


def test_the_browser_may_not_load_from_other_servers(shown):
    with urllib.request.urlopen(shown.url) as answer:
        policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_the_server_listens_only_on_loopback(shown):
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", shown.address.port), timeout=5)


def test_tokens_are_random_and_used_ports_are_skipped(shown):
    with page(title="another", port=shown.address.port) as other:
        address = urlsplit(other.url)
        assert address.port > shown.address.port
        assert address.path != shown.address.path
        assert re.fullmatch(r"/[\w-]{32}", address.path)
        assert http_status(shown, address.path) == 403
    assert http_status(shown, shown.address.path) == 200


@pytest.mark.parametrize("port", [99_999, 65_536, 0, -1])
def test_an_invalid_port_gives_an_error_message(port):
    with (
        pytest.raises(memes.UsageError, match=rf"port must lie in 1 \.\.\. 65535, got {port}"),
        page(title="none", port=port),
    ):
        pass


def test_an_error_message_says_that_no_port_is_free():
    with (
        socket.create_server(("127.0.0.1", 65_535)),
        pytest.raises(memes.UsageError, match="port: no port from 65535 on is free"),
        page(title="none", port=65_535),
    ):
        pass


def test_a_version_of_viser_that_bypasses_the_guard_serves_nothing(monkeypatch):
    monkeypatch.setattr(server, "listening", type(server)("elsewhere"))
    server.listening.serve = None
    with pytest.raises(memes.RunError, match="cannot be guarded"), page(title="none", port=8517):
        pass


def private_names():
    """Yield (owner, name, entry) for each private name of viser that the server needs.

    `missing` reports a missing name as `entry`.
    """
    for name, fields in (server.ACCEPTED | server.SENT).items():
        yield viser._messages, name, name
        yield from ((getattr(viser._messages, name), field, f"{name}.{field}") for field in fields)


def test_the_installed_viser_has_all_required_private_names(shown):
    assert server.missing(shown.server) == []


@pytest.mark.parametrize(("owner", "name", "entry"), [*private_names()])
def test_missing_messages_of_viser_are_named(shown, monkeypatch, owner, name, entry):
    if owner is viser._messages:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, "__dataclass_fields__", {**owner.__dataclass_fields__})
        del owner.__dataclass_fields__[name]
    assert server.missing(shown.server) == [entry]


@pytest.mark.parametrize("path", [server.CONTROLS, server.QUEUE])
def test_missing_parts_of_viser_are_named(path):
    assert path in server.missing(SimpleNamespace(gui=SimpleNamespace()))


def test_no_other_private_name_of_viser_is_used():
    """Modules of `view` other than `server` use no private names of viser."""
    private = re.compile(r"(?:viser|server|gui|scene|client)\.(?:\w+\.)*_(?!_)\w+")
    for file in Path(server.__file__).parent.glob("*.py"):
        found = {name for name in private.findall(file.read_text()) if not name.startswith("memes")}
        assert found <= ({"server._messages"} if file.name == "server.py" else set()), file


def test_without_a_private_name_no_page_is_served(monkeypatch):
    monkeypatch.setattr(server, "QUEUE", "_elsewhere.queue")
    with pytest.raises(memes.RunError, match=r"has no _elsewhere\.queue"), page(title="none", port=8517):
        pass


# ------------------------------------------------------------------------------------------- messages


def update(shown, name, value, **more):
    return {"type": "GuiUpdateMessage", "uuid": shown.uuid(name), "updates": {"value": value, **more}}


CAMERA = {
    "type": "ViewerCameraMessage",
    "wxyz": [1.0, 0, 0, 0],
    "position": [1.0, 2, 3],
    "fov": 1.0,
    "near": 0.1,
    "far": 100,
    "image_height": 480,
    "image_width": 640,
    "look_at": [0, 0, 0.0],
    "up_direction": [0, 0, 1.0],
}


# Cameras that cannot show anything.
BLIND = (
    {"up_direction": [0, 0, 0.0]},
    *({name: 0} for name in ("image_height", "image_width", "fov", "near", "far")),
    *({name: -1} for name in ("image_height", "image_width", "fov", "near", "far")),
    *({name: 2**40} for name in ("image_height", "image_width", "fov", "near", "far")),
    {"wxyz": [0.0, 0, 0, 0]},
    {"position": [1e300, 0, 0]},
    {"position": [0.0, 0, 0], "look_at": [0, 0, 0.0]},
)


CLICK = {
    "type": "SceneNodeClickMessage",
    "name": "/ball",
    "instance_index": None,
    "ray_origin": [0.0, -1, 0],
    "ray_direction": [0.0, 1, 0],
    "screen_pos": [0.5, 0.5],
    "modifier": None,
    "owner": "",
}


def test_controls_cameras_clicks_and_keys_are_handled(shown):
    wanted = {"slider": 2.5, "checkbox": False, "dropdown": "2", "colour": [4, 5, 6]}
    received = []
    shown.server.scene.add_icosphere("/ball").on_click(lambda event: received.append(event.modifier))
    key = shown.server.gui.add_command("key", hotkey="arrowup")
    key.on_trigger(lambda event: received.append("key"))
    with socket_of(shown) as websocket:
        websocket.send(msgspec.msgpack.encode(CAMERA))
        assert eventually(lambda: len(shown.server.get_clients()) == 1)
        websocket.send(msgspec.msgpack.encode(CLICK))
        assert eventually(lambda: received == [None])
        websocket.send(msgspec.msgpack.encode({"type": "CommandTriggerMessage", "uuid": key._impl.uuid}))
        assert eventually(lambda: received == [None, "key"])
        for name, value in wanted.items():
            websocket.send(msgspec.msgpack.encode(update(shown, name, value)))
        assert eventually(lambda: shown.values() == (2.5, False, "2", (4, 5, 6)))


def invalid_messages(shown):
    """Yield messages that the page never sends."""
    for value in (math.nan, math.inf, "nan", "1", -1, 99, 1e300, None, [], {}, True, 2**63, b"1"):
        yield update(shown, "slider", value)
    for name, value in (("checkbox", "no"), ("checkbox", 1), ("dropdown", "3"), ("dropdown", ["1"])):
        yield update(shown, name, value)
    for value in ([1, 2], [1, 2, math.nan], [1, 2, "3"], 3, "rgb"):
        yield update(shown, "colour", value)
    yield update(shown, "slider", 2.0, update_cb=3)
    yield {"type": "GuiUpdateMessage", "uuid": shown.uuid("slider"), "updates": {"sync_cb": None}}
    yield {"type": "GuiUpdateMessage", "uuid": "unknown", "updates": {"value": 1}}
    yield {"type": "GuiUpdateMessage", "uuid": shown.uuid("slider")}
    yield {"type": "GuiUpdateMessage", "uuid": shown.uuid("slider"), "updates": []}
    for field in set(CAMERA) - {"type"}:
        yield {k: v for k, v in CAMERA.items() if k != field}
        for value in (math.nan, "x", None, [1.0], [math.nan] * 4):
            yield CAMERA | {field: value}
    yield CAMERA | {"more": 1}
    yield from (CAMERA | change for change in BLIND)
    for field in ("name", "ray_origin", "ray_direction", "screen_pos", "instance_index", "owner"):
        for value in (math.nan, {}, [1.0], [math.nan] * 3):
            yield CLICK | {field: value}
    yield CLICK | {"name": "/nothing"}
    yield {"type": "CommandTriggerMessage", "uuid": "unknown"}
    yield {"type": "CommandTriggerMessage", "uuid": 3}
    yield from ({"type": name} for name in ("ShareUrlDisconnect", "Message", "nothing", None, 3, [], {}))
    yield from ({}, [], None, 3, "text", {1: 2}, CAMERA["wxyz"])


def test_invalid_messages_have_no_effect(shown, capfd):
    before = shown.values()
    with socket_of(shown) as websocket:
        for message in invalid_messages(shown):
            websocket.send(msgspec.msgpack.encode(message))
        for raw in (b"", b"\xc1", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", b"\xff" * 1000, "text", "{}"):
            websocket.send(raw)
        assert shown.values() == before
        wanted = 0.5 if before[0] != 0.5 else 0.7
        websocket.send(msgspec.msgpack.encode(update(shown, "slider", wanted)))
        assert eventually(lambda: shown.slider.value == wanted)  # over the same connection
        assert shown.values()[1:] == before[1:]
    assert http_status(shown, shown.address.path) == 200
    assert capfd.readouterr() == ("", "")


def test_a_message_that_is_too_large_ends_only_its_own_connection(shown):
    with socket_of(shown) as hostile:
        hostile.send(bytes(3_000_000))
        assert eventually(
            lambda: hostile.close_code is not None or hostile.protocol.state.name != "OPEN"
        )
    with socket_of(shown) as websocket:
        assert websocket.recv(timeout=10)


def test_no_message_opens_a_tunnel(shown, monkeypatch):
    opened = []
    monkeypatch.setattr(shown.server, "request_share_url", lambda *args, **options: opened.append(args))
    with socket_of(shown) as websocket:
        websocket.send(msgspec.msgpack.encode({"type": "ShareUrlRequest"}))
        wanted = 1.5 if shown.slider.value != 1.5 else 1.7
        websocket.send(msgspec.msgpack.encode(update(shown, "slider", wanted)))
        assert eventually(lambda: shown.slider.value == wanted)
    time.sleep(0.2)  # other threads open tunnels
    assert opened == []


@pytest.fixture
def page_and_server():
    """Return the page of a run, and the server of this page."""
    runs = Runs([OLD])
    runs.poll(strict=True)
    with page(title="a test", port=8417) as served:
        shown = browser.Page(served.server, runs, lambda run: None)
        yield shown, Shown(served)
        shown.close()


def test_the_page_continues_after_any_camera_and_event(page_and_server, monkeypatch, caplog):
    shown, server = page_and_server
    received = []
    handle = browser.Page._handle

    def failing(self, name, value, client):
        received.append(name)
        if value == "raise":
            raise ZeroDivisionError("by an event")
        handle(self, name, value, client)

    monkeypatch.setattr(browser.Page, "_handle", failing)
    with socket_of(server) as websocket:
        for change in BLIND:
            websocket.send(msgspec.msgpack.encode(CAMERA | change))
        assert not server.server.get_clients()
        websocket.send(msgspec.msgpack.encode(CAMERA))
        assert eventually(lambda: len(server.server.get_clients()) == 1)
        (client,) = server.server.get_clients().values()
        client.camera._state.up_direction = [0, 0, 0.0]  # other versions of viser might allow this
        for event in (
            ("click", "raise", None),
            ("click", (0.5, 0.5, "invalid"), None),
            ("click", ("x", None, None), None),
            ("walk", "nowhere", None),
            ("look", None, client),
            ("look", None, None),
            ("save video", None, None),
            ("unknown", None, None),
            ("click", "raise", None),
            ("pause", None, None),
        ):
            shown.panel.events.put(event)
        playing = shown.panel.playing.value
        assert eventually(lambda: shown.turn() or received[-1:] == ["pause"])
        shown.turn()
    assert shown.panel.playing.value != playing
    (message,) = (text for text in caplog.messages if "by an event" in text)  # printed only once
    assert "the page continues after ZeroDivisionError: by an event" in message
