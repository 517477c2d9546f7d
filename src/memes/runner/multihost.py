"""Groups of processes that compute a run together. The first process makes decisions and writes files.

JAX connects the devices of the processes. In addition, this module connects the first process to each of
the other processes, and sends them the decisions of the first process. If a connection is lost, the
remaining processes exit with an error message. Without this module, JAX would wait for at least a
minute, and then abort without an error message.
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

# A process sends a heartbeat every `BEAT` seconds. It counts as lost after `PATIENCE` seconds without a
# heartbeat.
BEAT, PATIENCE = 2.0, 20.0
# A process exits with the code `LOST` after it has lost another process.
LOST = 1
# Launchers set one of these environment variables to the number of processes.
SIZES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
BYE = b"bye"
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass
class ProcessGroup:
    """The processes that compute a run, and the connections of this process.

    Attributes:
        index: Number of this process. The number of the first process is 0.
        count: Number of processes.
        over: True after the processes have disconnected.
    """

    index: int = 0
    count: int = 1
    over: bool = False
    _links: list[_Link] = field(default_factory=list)
    _decisions: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)

    @property
    def leads(self) -> bool:
        """True in the first process, which makes decisions, writes files and prints messages."""
        return self.index == 0

    def agree(self, decide: Callable[..., int | None], *arguments: Any) -> int:
        """Return the same number in all processes.

        Only the first process calls `decide`. It sends the result to the other processes, or 0 if the
        result is None.
        """
        if not self.leads:
            return self._decisions.get()
        decision = int(decide(*arguments) or 0)
        for link in self._links:
            link.send(str(decision).encode())
        return decision

    def broadcast(self, tree: Any) -> Any:
        """Send a pytree from the first process to all processes, and return it in all of them."""
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

    def disconnect(self) -> None:
        """Disconnect when all processes are done.

        After an unhandled exception, end this process immediately.
        """
        if self.over or self.count == 1:
            return
        if getattr(sys, "last_value", None) is not None:
            os._exit(LOST)  # with a normal exit, JAX and the other processes would wait for each other
        for link in self._links:
            link.disconnect()
        self.over = True


class _Link:
    """A connection that exchanges lines with another process. Empty lines are heartbeats."""

    def __init__(self, other: int, connection: socket.socket, hear: Callable[[bytes], None]) -> None:
        self.other = other
        self._connection = connection
        self._hear = hear
        # `_parting` is set when this side disconnects. `_parted` is set when the other side disconnects.
        self._parting = threading.Event()
        self._parted = threading.Event()
        connection.settimeout(PATIENCE)
        for work in (self._read, self._beat):
            threading.Thread(target=work, daemon=True).start()

    def send(self, line: bytes) -> None:
        with suppress(OSError):  # the reading thread reports the error
            self._connection.sendall(line + b"\n")

    def disconnect(self) -> None:
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
            except OSError:  # a timeout is also an OSError
                new = b""
            if not new:
                end(f"process {self.other} of this run ended or cannot be reached")
            *lines, rest = (rest + new).split(b"\n")
            for line in filter(None, lines):
                self._parted.set() if line == BYE else self._hear(line)


def end(sentence: str) -> NoReturn:
    """Print an error message and exit at once, because another thread may wait for a lost process."""
    hint = "'memes resume' continues from the last checkpoint"
    print(f"memes: {sentence}; {hint}", file=sys.stderr, flush=True)
    os._exit(LOST)


_group = ProcessGroup()


def process_group() -> ProcessGroup:
    """Return the processes of the current run."""
    return _group


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """Addresses and numbers of the processes of a run.

    Attributes:
        coordinator: Address of the first process, with a free port, such as node1:1234. srun and mpirun
            set coordinator, processes and process automatically.
        processes: Number of processes that compute the run. If 1, this process runs alone.
        process: Number of this process, starting at 0. Only the first process writes files and prints
            messages.
    """

    coordinator: str | None = None
    processes: int | None = None
    process: int | None = None


@flat
def join_processes(*, options: HostOptions = HostOptions()) -> ProcessGroup:
    """Connect the processes that compute runs together. Call this function before using JAX.

    All processes must run the same program with the same arguments. Slurm (`srun`) and Open MPI
    (`mpirun`) provide the number of processes and their indices. Without them, all three fields of
    `options` are required.

    Args:
        options: Addresses and numbers of the processes.

    Returns:
        The group of processes.
    """
    global _group
    coordinator, processes, process = options.coordinator, options.processes, options.process
    given = [name for name, value in vars(options).items() if value is not None]
    found = max(map(_size, SIZES))
    if "mpi4py.futures" in sys.modules:  # the other processes are workers of this process
        found = 1
    if processes == 1 or (not given and found == 1) or _group.count > 1:
        return _group
    require(
        not given or len(given) == len(vars(options)),
        f"coordinator, processes and process must be given together, got only {' and '.join(given)}",
    )
    if given:
        at_least(1, processes=processes)
        within = 0 <= (process or 0) < (processes or 1)
        require(within, f"process must lie in [0, {processes}), got {process}")
    # On CPUs, programs must not run concurrently, because they could receive each other's messages.
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # type: ignore[no-untyped-call]
    jax.distributed.initialize(coordinator, processes, process)
    _group = _connected(coordinator)
    # Handlers run in reverse order of registration, so this handler runs before JAX's handler.
    atexit.register(_group.disconnect)
    return _group


def _size(name: str) -> int:
    """Return the number of processes from a launcher's environment variable, or 1 if it is not set."""
    value = os.environ.get(name) or "1"
    require(value.isdecimal(), f"{name} must be a whole number, got '{value}'")
    return int(value)


def _connected(coordinator: str | None) -> ProcessGroup:
    """Connect all processes to the first process. JAX transmits the address of the first process."""
    group = ProcessGroup(jax.process_index(), jax.process_count())
    host = socket.gethostname() if coordinator is None else coordinator.rpartition(":")[0]
    # A machine's name may resolve to its loopback address, which other machines cannot reach.
    bound = host if host in LOOPBACK else ""
    server = socket.create_server((bound, 0), backlog=group.count) if group.leads else None
    place = [host, server.getsockname()[1], secrets.token_hex(16)] if server else None
    text = np.zeros(512, np.uint8)
    words = json.dumps(place).encode()
    text[: len(words)] = np.frombuffer(words, np.uint8)
    known = bytes(group.broadcast(text)).rstrip(b"\0")
    host, port, token = json.loads(known)
    if server is None:
        connection = socket.create_connection((host, port), timeout=PATIENCE)
        connection.sendall(f"{token} {group.index:8}".encode())
        group._links.append(_Link(0, connection, lambda line: group._decisions.put(int(line))))
        return group
    for index, connection in welcomed(server, token, group.count - 1):
        group._links.append(_Link(index, connection, lambda line: None))
    return group


def welcomed(server: socket.socket, token: str, count: int) -> Iterator[tuple[int, socket.socket]]:
    """Yield `count` connections that have sent the token, each with the number of its process.

    All other connections are closed. They do not delay the connections that send the token.
    """
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
                raise RunError(f"only {i} of {count} processes have connected to process 0") from None
    finally:
        over.set()
        accepting.join()
        server.close()
