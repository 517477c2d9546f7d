"""A page for this machine and its user alone: every page of ours is served from here.

The server listens on loopback. It answers whoever knows the address that was printed, which holds a
random token, and refuses pages of other origins. It never opens a tunnel, and drops every message that
the controls of the page cannot have sent.
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
LARGEST = 2**20  # bytes of a message
LARGEST_SIDE = 10**5  # pixels of a camera's picture
NEAREST, FARTHEST = 1e-9, 1e9  # lengths of vectors, and coordinates, of a camera
# Private names of viser, whose version has an upper bound; `missing` checks all of them.
# Messages that the page may send, with the fields that we read: above all not ShareUrlRequest, which
# opens a tunnel.
ACCEPTED: dict[str, tuple[str, ...]] = {
    "ViewerCameraMessage": (
        "position", "look_at", "up_direction", "wxyz", "fov", "near", "far", "image_width",
        "image_height",
    ),
    "GuiUpdateMessage": ("uuid", "updates"),
    "SceneNodeClickMessage": (),
    "CommandTriggerMessage": (),
}  # fmt: skip
SENT = {"RunJavascriptMessage": ("source",)}  # messages that we send to the page
CONTROLS = "_gui_input_handle_from_uuid"  # of `server.gui`: its controls
QUEUE = "_websock_interface.queue_message"  # of `server.gui`: sends a message
HEADERS = {
    "Cache-Control": "no-store",
    # The browser itself asks nobody else for anything, whatever a name on the page may be.
    "Content-Security-Policy": "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}

Answer = Callable[[Any, Request], Response | None]


class ServedPage(NamedTuple):
    """A page that is being served.

    Attributes:
        server: Holds the scene and the controls.
        url: The one address that opens it.
    """

    server: viser.ViserServer
    url: str


@contextmanager
def page(*, title: str, port: int) -> Iterator[ServedPage]:
    """Serve a page until the context ends.

    Args:
        title: Title of the page, also above its controls.
        port: Where to serve, or the next free one.
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
    """List the names in the table above that the installed viser does not have."""
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
    """Run a script on each page, also on those that are opened later."""
    attrgetter(QUEUE)(server.gui)(_messages.RunJavascriptMessage(source=source))


def free_arrow_keys(server: viser.ViserServer) -> None:
    """Reserve arrow keys for the commands of a page: viser turns the camera with them, too."""
    stop = "event => event.key.startsWith('Arrow') && event.stopPropagation()"
    # Commands listen below this element, the camera above it.
    run_javascript(server, f"document.documentElement.addEventListener('keydown', {stop})")


def _unfit(reason: str) -> str:
    return f"the page cannot be guarded with this version of viser ({viser.__version__}): {reason}"


def _listener(port: int) -> socket.socket:
    """Listen on the port, or on the next free one."""
    require(1 <= port <= LAST_PORT, f"port must lie in 1 ... {LAST_PORT}, got {port}")
    for candidate in range(port, min(port + 1000, LAST_PORT + 1)):
        try:
            return socket.create_server((HOST, candidate))
        except OSError:
            continue
    raise UsageError(f"port: none is free from {port} on")


def _start(listener: socket.socket, token: str, title: str) -> viser.ViserServer:
    """Start viser's server behind our guard.

    Viser has no setting for a guard. So while it starts, what it calls to listen is replaced by `serve`,
    which listens where we say and hands on only what the guard lets pass.
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
        with redirect_stdout(io.StringIO()):  # a box of its own, which says no more than our line
            server = viser.ViserServer(
                host=HOST, port=listener.getsockname()[1], label=title, verbose=False
            )
    finally:
        listening.serve = original
    if not started:
        server.stop()
        raise RunError(_unfit("it listens by other means"))
    return server


def _silent() -> logging.Logger:
    """Nonsense that is refused is no news."""
    logger = logging.Logger("memes.view", logging.CRITICAL + 1)
    logger.addHandler(logging.NullHandler())
    return logger


# --------------------------------------------------------------------------------------------- requests


def guarded(answer: Answer, token: str) -> Answer:
    """Answer requests under `/token`, as if that were the root, if they come from this machine."""

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
        except Exception:  # the path is no name of a file: too long, or not even text
            response = connection.respond(HTTPStatus.NOT_FOUND, "There is no such file.\n")
        if response is not None:
            response.headers.update(HEADERS)
        return response

    return guard


def at_home(request: Request) -> bool:
    """Was the request sent to a name of this machine, and by no page but our own?

    The port may be another one than ours: a tunnel of the user's own (ssh -L) changes it.
    """
    hosts, origins = request.headers.get_all("Host"), request.headers.get_all("Origin")
    if len(hosts) != 1 or NAME.fullmatch(hosts[0]) is None:
        return False
    return all(origin.lower() == f"http://{hosts[0].lower()}" for origin in origins)


# --------------------------------------------------------------------------------------------- messages


def _only_understood(receive: Callable[[], Any], server: viser.ViserServer) -> Callable[[], Any]:
    """Receive the next message that makes sense."""

    async def receive_one() -> bytes:
        while True:
            raw = await receive()
            if understood(raw, server.gui):
                return bytes(raw)

    return receive_one


def understood(raw: Any, gui: Any) -> bool:
    """Could the controls of the page have sent this message?"""
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
    except Exception:  # whatever nonsense does to a parser
        return False


def looks(camera: dict[str, Any]) -> bool:
    """Is this a camera that looks somewhere, with a picture that has a size?"""
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
    """Is this a value that the control offers?"""
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
