"""Several processes that compute one run: the first decides and writes, the others follow.

JAX joins their devices; what is here passes the decisions of the first process on, over a connection to
each of the others, and ends all of them if one is lost. JAX alone would wait for a minute or more, and
then abort without a word.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from memes.errors import RunError, at_least, require
from memes.parameters import flat

BEAT, PATIENCE = 2.0, 20.0  # seconds between signs of life, and without any
LOST = 1  # the exit code
SIZES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")  # where launchers say how many processes
BYE = b"bye"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass
class Team:
    """The processes of a run, as one of them sees them; by itself, if nobody joined.

    Attributes:
        index: Which this is; the first one, 0, leads.
        count: How many there are.
        over: True once they have parted.
    """

    index: int = 0
    count: int = 1
    over: bool = False
    _links: list[_Link] = field(default_factory=list)
    _decisions: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)

    @property
    def leads(self) -> bool:
        """True of the process that decides, writes and speaks."""
        return self.index == 0

    def agree(self, decide: Callable[..., int | None], *arguments: Any) -> int:
        """Tell all processes the number that the first one decides; 0 is nothing, or no."""
        if not self.leads:
            return self._decisions.get()
        decision = int(decide(*arguments) or 0)
        for link in self._links:
            link.send(str(decision).encode())
        return decision

    def same(self, tree: Any) -> Any:
        """The tree of the first process, in all of them."""
        if self.count == 1:
            return tree
        leaves, structure = jax.tree.flatten(jax.device_get(tree))
        arrays = [np.asarray(leaf) for leaf in leaves]
        packed = np.concatenate([np.frombuffer(array.tobytes(), np.uint8) for array in arrays])
        told = np.asarray(multihost_utils.broadcast_one_to_all(packed)).tobytes()
        ends = np.cumsum([array.nbytes for array in arrays])
        parts = zip(arrays, [0, *ends[:-1]], ends, strict=True)
        found = [np.frombuffer(told[i:j], a.dtype).reshape(a.shape) for a, i, j in parts]
        return jax.tree.unflatten(structure, found)

    def part(self) -> None:
        """End it in good order, once all are done; or at once, if an exception ends this process."""
        if self.over or self.count == 1:
            return
        if getattr(sys, "last_value", None) is not None:
            os._exit(LOST)  # JAX would wait for the others, and they for this one
        for link in self._links:
            link.part()
        self.over = True


class _Link:
    """A connection to another process: lines, and empty ones as signs of life."""

    def __init__(self, other: int, connection: socket.socket, hear: Callable[[bytes], None]) -> None:
        self.other = other
        self._connection = connection
        self._hear = hear
        self._parting = threading.Event()  # of this side
        self._parted = threading.Event()  # of the other side
        connection.settimeout(PATIENCE)
        for work in (self._read, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def send(self, line: bytes) -> None:
        with suppress(OSError):  # the reader notices, and says so
            self._connection.sendall(line + b"\n")

    def part(self) -> None:
        self._parting.set()
        self.send(BYE)
        self._parted.wait()

    def _beat(self) -> None:
        while not (self._parting.is_set() and self._parted.is_set()):
            self.send(b"")
            time.sleep(BEAT)

    def _read(self) -> None:
        rest = b""
        while not self._parted.is_set():
            try:
                new = self._connection.recv(4096)
            except OSError:  # also if nothing came for too long
                new = b""
            if not new:
                end(f"process {self.other} of this run ended or cannot be reached")
            *lines, rest = (rest + new).split(b"\n")
            for line in filter(None, lines):
                self._parted.set() if line == BYE else self._hear(line)


def end(sentence: str) -> NoReturn:
    """End this process at once, with a sentence: it may be waiting for one that is gone."""
    hint = "'memes resume' goes on from the last checkpoint"
    print(f"memes: {sentence}; {hint}", file=sys.stderr, flush=True)
    os._exit(LOST)


_present = Team()


def present() -> Team:
    """The team of this process."""
    return _present


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """Where the processes of a run meet.

    Attributes:
        coordinator: Address of the first of several processes, with a port that is free there, such as
            node1:1234. Below srun and mpirun all three of these are known.
        processes: How many processes compute the run; 1 leaves this one by itself.
        process: Which of them this is, from 0. The first one writes, the others are silent.
    """

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


@flat
def join_processes(*, meeting: HostOptions = HostOptions()) -> Team:
    """Join the processes that compute runs together; before anything is computed.

    Each is started with the same program and arguments. Slurm (`srun`) and Open MPI (`mpirun`) say how
    many there are and which is which; otherwise all three arguments do.

    Args:
        meeting: Where they meet.
    """
    global _present
    coordinator, processes, process = meeting.coordinator, meeting.processes, meeting.process
    given = [name for name, value in vars(meeting).items() if value is not None]
    found = max(map(_size, SIZES))
    if "mpi4py.futures" in sys.modules:  # the others that were started are workers of this one
        found = 1
    if processes == 1 or (not given and found == 1) or _present.count > 1:
        return _present
    require(
        not given or len(given) == len(vars(meeting)),
        f"coordinator, processes and process go together, got {' and '.join(given)} alone",
    )
    if given:
        at_least(1, processes=processes)
        within = 0 <= (process or 0) < (processes or 1)
        require(within, f"process must lie in [0, {processes}), got {process}")
    # On CPUs, programs that run at the same time would mix up their messages.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    jax.distributed.initialize(coordinator, processes, process)
    _present = _connected(coordinator)
    atexit.register(_present.part)  # before JAX's own, which was registered before
    return _present


def _size(name: str) -> int:
    """The number of processes that a launcher says; 1 if it says nothing."""
    value = os.environ.get(name) or "1"
    require(value.isdecimal(), f"{name} must be a whole number, got '{value}'")
    return int(value)


def _connected(coordinator: str | None) -> Team:
    """Connect all processes to the first, which says where over JAX's own connections."""
    team = Team(jax.process_index(), jax.process_count())
    host = socket.gethostname() if coordinator is None else coordinator.rpartition(":")[0]
    # The own name of a machine may mean its loopback there, and nowhere else.
    bound = host if host in LOOPBACK else ""
    server = socket.create_server((bound, 0), backlog=team.count) if team.leads else None
    place = [host, server.getsockname()[1], secrets.token_hex(16)] if server else None
    text = np.zeros(512, np.uint8)
    words = json.dumps(place).encode()
    text[: len(words)] = np.frombuffer(words, np.uint8)
    known = bytes(team.same(text)).rstrip(b"\0")
    host, port, token = json.loads(known)
    if server is None:
        connection = socket.create_connection((host, port), timeout=PATIENCE)
        connection.sendall(f"{token} {team.index:8}".encode())
        team._links.append(_Link(0, connection, lambda line: team._decisions.put(int(line))))
        return team
    for index, connection in welcomed(server, token, team.count - 1):
        team._links.append(_Link(index, connection, lambda line: None))
    return team


def welcomed(server: socket.socket, token: str, count: int) -> Iterator[tuple[int, socket.socket]]:
    """Wait for connections that know the token, each with a number; others do not delay it."""
    known: queue.SimpleQueue[tuple[int, socket.socket]] = queue.SimpleQueue()
    over = threading.Event()

    def greet(connection: socket.socket) -> None:
        with suppress(OSError, ValueError):
            connection.settimeout(PATIENCE)
            given, _, index = connection.recv(len(token) + 9, socket.MSG_WAITALL).partition(b" ")
            if secrets.compare_digest(given, token.encode()) and not over.is_set():
                known.put((int(index), connection))
                return
        connection.close()

    def accept() -> None:
        server.settimeout(0.2)
        while not over.is_set():
            with suppress(OSError):
                connection, _ = server.accept()
                threading.Thread(target=greet, args=(connection,), daemon=True).start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        for i in range(count):
            try:
                yield known.get(timeout=PATIENCE)
            except queue.Empty:
                raise RunError(f"only {i} of {count} processes have connected to the first") from None
    finally:
        over.set()
        accepting.join()
        server.close()
