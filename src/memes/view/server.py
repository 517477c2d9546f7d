"""A web server for one local user, which serves the pages of this library.

- The server listens only on the loopback address.
- It accepts only requests with the random token from the printed address.
- It rejects requests from pages of other origins.
- It never opens a tunnel.
- It drops messages that the controls of the page could not have sent.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import math
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from http import HTTPStatus
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import viser
import websockets.asyncio.server
from viser import _messages
from websockets.http11 import Request, Response

from memes.errors import RunError, UsageError, require

listening: Any = websockets.asyncio.server
HOST = "127.0.0.1"
NAME = re.compile(rf"({re.escape(HOST)}|localhost)(:\d{{1,5}})?", re.IGNORECASE | re.ASCII)
LAST_PORT = 65535

# A message has at most `LARGEST` bytes. The picture of a camera has at most `LARGEST_SIDE` pixels per
# side. The vectors of a camera have a length of at least `NEAREST` and coordinates up to `FARTHEST`.
LARGEST = 2**20
LARGEST_SIDE = 10**5
NEAREST, FARTHEST = 1e-9, 1e9

# The following names are private in viser. Therefore viser's version has an upper bound, and `missing`
# checks that the names exist. `ACCEPTED` lists the messages that the page may send, with the fields that
# the server reads. It must not contain ShareUrlRequest, which opens a tunnel.
ACCEPTED: dict[str, tuple[str, ...]] = {
    "ViewerCameraMessage": (
        "position", "look_at", "up_direction", "wxyz", "fov", "near", "far", "image_width",
        "image_height",
    ),
    "GuiUpdateMessage": ("uuid", "updates"),
    "SceneNodeClickMessage": (),
    "CommandTriggerMessage": (),
}  # fmt: skip

# `SENT` is the message that the server sends to the page. `CONTROLS` and `QUEUE` are attributes of
# `server.gui`: a dict of all controls, and a function that sends a message.
SENT = {"RunJavascriptMessage": ("source",)}
CONTROLS = "_gui_input_handle_from_uuid"
QUEUE = "_websock_interface.queue_message"
HEADERS = {
    "Cache-Control": "no-store",
    # This policy prevents the browser from loading anything from other servers.
    "Content-Security-Policy": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}

Answer = Callable[[Any, Request], Response | None]


class ServedPage(NamedTuple):
    """A page that is being served.

    Attributes:
        server: Server with the scene and the controls.
        url: Address of the page, with its token.
    """

    server: viser.ViserServer
    url: str


@contextmanager
def page(*, title: str, port: int) -> Iterator[ServedPage]:
    """Serve a page until the context ends.

    Args:
        title: Title of the page and of its controls.
        port: Port of the server. If it is in use, the next free port is used.
    """
    token = secrets.token_urlsafe(24)
    with _listener(port) as listener:
        server = _start(listener, token, title)
        try:
            absent = missing(server)
            if absent:
                raise RunError(_unfit(f"it has no {', '.join(absent)}"))
            run_javascript(server, f"document.title = {json.dumps(title)}")
            server.gui.configure_theme(show_share_button=False)
            yield ServedPage(server, f"http://{HOST}:{server.get_port()}/{token}")
        finally:
            with redirect_stdout(io.StringIO()):
                server.stop()


def missing(server: Any) -> list[str]:
    """List private names that this module uses but the installed version of viser does not have."""
    absent = []
    for name, fields in (ACCEPTED | SENT).items():
        kind = getattr(_messages, name, None)
        known = {field.name for field in dataclasses.fields(kind)} if kind is not None else set()
        absent += [name] if kind is None else [f"{name}.{each}" for each in fields if each not in known]
    for path in (CONTROLS, QUEUE):
        try:
            attrgetter(path)(server.gui)
        except AttributeError:
            absent.append(path)
    return absent


def run_javascript(server: Any, source: str) -> None:
    """Run a script on each page, including pages that are opened later."""
    attrgetter(QUEUE)(server.gui)(_messages.RunJavascriptMessage(source=source))


def free_arrow_keys(server: viser.ViserServer) -> None:
    """Prevent viser from turning the camera when an arrow key triggers a command of the page."""
    stop = "event => event.key.startsWith('Arrow') && event.stopPropagation()"
    # Key events pass from inner to outer elements, and stop at the root element. The page's command
    # handlers are inside the root element, so they still run. The handler that turns the camera is
    # outside, so it does not run.
    run_javascript(server, f"document.documentElement.addEventListener('keydown', {stop})")


def _unfit(reason: str) -> str:
    return f"the page cannot be guarded with this version of viser ({viser.__version__}): {reason}"


def _listener(port: int) -> socket.socket:
    """Return a socket that listens on the port, or on the next free port."""
    require(1 <= port <= LAST_PORT, f"port must lie in 1 ... {LAST_PORT}, got {port}")
    for candidate in range(port, min(port + 1000, LAST_PORT + 1)):
        try:
            return socket.create_server((HOST, candidate))
        except OSError:
            continue
    raise UsageError(f"port: no port from {port} on is free; choose a smaller number")


def _start(listener: socket.socket, token: str, title: str) -> viser.ViserServer:
    """Start viser's server, and check all requests and messages before viser handles them.

    Viser has no setting for such checks. During the start, `websockets.serve` is therefore replaced by
    a function that adds the checks and uses the given listener.
    """
    original, started = listening.serve, []

    def serve(handler: Any, *place: Any, process_request: Answer, **options: Any) -> Any:
        started.append(handler)

        async def handle(connection: Any) -> None:
            connection.recv = _only_understood(connection.recv, server)
            await handler(connection)

        options |= {"max_size": LARGEST, "logger": _silent(), "sock": listener}
        return original(handle, process_request=guarded(process_request, token), **options)

    listening.serve = serve
    try:
        with redirect_stdout(io.StringIO()):  # viser prints a box with the address
            server = viser.ViserServer(
                host=HOST, port=listener.getsockname()[1], label=title, verbose=False
            )
    finally:
        listening.serve = original
    if not started:
        server.stop()
        raise RunError(_unfit("it does not call `websockets.serve`"))
    return server


def _silent() -> logging.Logger:
    """Make a logger that drops messages about rejected requests."""
    logger = logging.Logger("memes.view", logging.CRITICAL + 1)
    logger.addHandler(logging.NullHandler())
    return logger


# --------------------------------------------------------------------------------------------- requests


def guarded(answer: Answer, token: str) -> Answer:
    """Return a function that accepts valid requests for paths under `/token` and rejects all others."""

    def guard(connection: Any, request: Request) -> Response | None:
        first, _, rest = request.path.partition("?")[0].removeprefix("/").partition("/")
        given = first.encode(errors="replace")
        if not (at_home(request) and secrets.compare_digest(given, token.encode())):
            refusal: Response = connection.respond(
                HTTPStatus.FORBIDDEN, "Open the address that was printed.\n"
            )
            return refusal
        try:
            response = answer(connection, dataclasses.replace(request, path=f"/{rest}"))
        except Exception:  # the path is not a valid file name
            response = connection.respond(HTTPStatus.NOT_FOUND, "There is no such file.\n")
        if response is not None:
            response.headers.update(HEADERS)
        return response

    return guard


def at_home(request: Request) -> bool:
    """Return True if a request has a local host name and does not come from another page.

    Any port is accepted, because the port changes if the user connects through a tunnel (ssh -L).
    """
    hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
    if len(hosts) != 1 or NAME.fullmatch(hosts[0]) is None:
        return False
    return all(origin.lower() == f"http://{hosts[0].lower()}" for origin in origins)


# --------------------------------------------------------------------------------------------- messages


def _only_understood(receive: Callable[[], Any], server: viser.ViserServer) -> Callable[[], Any]:
    """Return a function that receives the next valid message and drops invalid messages."""

    async def receive_one() -> bytes:
        while True:
            raw = await receive()
            if understood(raw, server.gui):
                return bytes(raw)

    return receive_one


def understood(raw: Any, gui: Any) -> bool:
    """Return True if the controls of the page could have sent a message."""
    try:
        fields = msgspec.msgpack.decode(raw)
        name = fields.pop("type")
        if name not in ACCEPTED:
            return False
        kind = getattr(_messages, name)
        msgspec.convert(fields, kind)
        known = {field.name for field in dataclasses.fields(kind)}
        if not (fields.keys() <= known and _finite(fields)):
            return False
        if name == "ViewerCameraMessage":
            return looks(fields)
        if name != "GuiUpdateMessage":
            return True
        control = attrgetter(CONTROLS)(gui)[fields["uuid"]]
        return fields["updates"].keys() == {"value"} and offered(control, fields["updates"]["value"])
    except Exception:  # a parser may raise anything on malformed input
        return False


def looks(camera: dict[str, Any]) -> bool:
    """Return True if the position, direction and picture size of a camera are valid."""
    sizes = camera["image_width"], camera["image_height"]
    vectors = {name: camera[name] for name in ("position", "look_at", "up_direction", "wxyz")}
    return (
        all(0 < size <= LARGEST_SIDE for size in sizes)
        and 0 < camera["fov"] < math.pi
        and 0 < camera["near"] < camera["far"] <= FARTHEST
        and all(abs(x) <= FARTHEST for vector in vectors.values() for x in vector)
        and math.dist(vectors["position"], vectors["look_at"]) > NEAREST
        and all(math.hypot(*vectors[name]) > NEAREST for name in ("up_direction", "wxyz"))
    )


def offered(control: Any, value: Any) -> bool:
    """Return True if a user can select this value with the control."""
    options, old = getattr(control, "options", None), control.value
    if options is not None:
        return value in options
    if isinstance(old, tuple):
        return len(value) == len(old) and all(map(_alike, old, value))
    low, high = (getattr(control, name, None) for name in ("min", "max"))
    least, most = -math.inf if low is None else low, math.inf if high is None else high
    return _alike(old, value) and (isinstance(old, bool | str) or least - 1e-6 <= value <= most + 1e-6)


def _alike(old: Any, new: Any) -> bool:
    numbers = (int, float)
    return type(new) is type(old) or (type(new) in numbers and type(old) in numbers)


def _finite(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    if isinstance(value, list):
        return all(map(_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
