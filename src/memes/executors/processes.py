"""A pool of worker processes that tolerates workers that hang, are killed, or run out of memory.

`concurrent.futures.ProcessPoolExecutor` loses all of its work if one process dies, and cannot end a
process that hangs. In this module, each worker process has a separate thread in the parent process. The
thread sends one piece of work at a time to the worker, and replaces the worker after a failure.
"""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any

from memes.errors import UsageError, in_a_line
from memes.executors.blocks import sendable

SPAWN = get_context("spawn")  # JAX does not support fork
# If a worker imports JAX, JAX must use the CPU. Each worker uses one core.
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
ENVIRONMENT = {"JAX_PLATFORMS": "cpu", **dict.fromkeys(THREADS, "1")}
SECONDS_TO_START = 300.0
_starting = threading.Lock()


class WorkerDied(RuntimeError):  # noqa: N818  (users see this name in "raised WorkerDied: ...")
    """An exception for a process that ended before it finished its work."""


class Processes(Executor):
    """A pool of worker processes. Processes that die or time out are replaced.

    Processes are started when there is work. If a process dies, the future of its work raises
    `WorkerDied`. If a process times out, the future raises `TimeoutError`.
    """

    def __init__(self, count: int, *, timeout: float | None = None) -> None:
        self.count, self.timeout, self.replaced = count, timeout, 0
        self._work: queue.SimpleQueue[tuple[Future[Any], bytes] | None] = queue.SimpleQueue()
        self._processes: set[SpawnProcess] = set()
        self._threads: list[threading.Thread] = []
        self._over = self._killing = False

    def __str__(self) -> str:
        replaced = f", {self.replaced} replaced" if self.replaced else ""
        return f"{self.count} worker{'s' * (self.count > 1)}{replaced}"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a function call. The function and its arguments must be picklable."""
        if self._over:
            raise RuntimeError("these workers have been shut down")
        try:
            work = pickle.dumps((fn, args, kwargs), protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise UsageError(
                f"workers cannot load the simulator ({in_a_line(error)}): a function for workers must "
                "be defined at the top level of a module"
            ) from error
        future: Future[Any] = Future()
        self._work.put((future, work))
        if not self._threads:
            atexit.register(self._abandon)
        if len(self._threads) < self.count:
            # The threads are daemons, because Python waits for all other threads before it calls
            # `_abandon` at exit.
            self._threads.append(threading.Thread(target=self._look_after_one, daemon=True))
            self._threads[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes.

        By default, the processes first finish all submitted work. If `wait` is false or
        `cancel_futures` is true, pending work is cancelled, and the processes are killed.
        """
        self._over = True
        atexit.unregister(self._abandon)
        with suppress(queue.Empty):
            while cancel_futures or not wait:
                item = self._work.get_nowait()
                if item is not None:
                    item[0].cancel()
        for _ in self._threads:
            self._work.put(None)
        if not wait or cancel_futures:
            with _starting:
                self._killing = True
                for process in list(self._processes):
                    process.kill()
        for thread in self._threads:
            thread.join()
        self._threads = []

    def _abandon(self) -> None:
        self.shutdown(wait=False)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.shutdown(wait=kind is None, cancel_futures=kind is not None)

    def _look_after_one(self) -> None:
        """Send work to one process, and replace the process if it fails."""
        worker: tuple[SpawnProcess, Connection] | None = None
        while (item := self._work.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._started()
                fine, result = self._answer(*worker, work)
            except Exception as error:
                if worker is not None:
                    self._ended(*worker)
                    worker, self.replaced = None, self.replaced + 1
                future.set_exception(error)
                continue
            future.set_result(result) if fine else future.set_exception(result)
        if worker is not None:
            self._ended(*worker)

    def _started(self) -> tuple[SpawnProcess, Connection]:
        ours, theirs = SPAWN.Pipe()
        process = SPAWN.Process(target=serve, args=(theirs,))
        with _starting, inherited():
            if self._killing:
                raise RuntimeError("these workers have been shut down")
            resource_tracker.ensure_running()  # starting it later would unblock the signals
            # Only the parent handles Ctrl-C. Processes inherit the signal mask of the thread that starts
            # them.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            process.start()
            self._processes.add(process)
        theirs.close()  # the pipe must close when the process ends
        return process, ours

    def _answer(self, process: SpawnProcess, pipe: Connection, work: bytes) -> tuple[bool, Any]:
        """Send work to a process, and wait for the result.

        Returns:
            True and the result if the work succeeded, or False and the exception if the work failed.
        """
        try:
            pipe.send_bytes(work)
            # The process sends two messages: one after its imports, and one with the result. The timeout
            # therefore does not include the duration of the imports.
            for limit in (self.timeout and max(self.timeout, SECONDS_TO_START), self.timeout):
                if not pipe.poll(limit):
                    raise TimeoutError(f"a worker had no result after {limit:g} s")
                answer = pipe.recv_bytes()
        except (EOFError, ConnectionError):
            process.join(1)
            code = process.exitcode or 0
            how = (
                f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            )
            raise WorkerDied(f"a worker {how}") from None
        found: tuple[bool, Any] = pickle.loads(answer)  # the answer comes from a trusted process
        return found

    def _ended(self, process: SpawnProcess, pipe: Connection) -> None:
        pipe.close()
        process.kill()
        process.join()
        self._processes.discard(process)


@contextmanager
def inherited() -> Iterator[None]:
    """Within the context, set the environment variables that new processes inherit.

    A variable that limits the number of threads is not changed if the user has set it.
    """
    new = ENVIRONMENT | {name: os.environ[name] for name in THREADS if name in os.environ}
    before = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def serve(pipe: Connection) -> None:
    """Run as a worker process until the parent closes the pipe or ends."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, ConnectionError):
        while True:
            work = pipe.recv_bytes()
            try:
                function, arguments, keywords = pickle.loads(work)
            except Exception as error:
                function, arguments, keywords = _raise, (sendable(error),), {}
            pipe.send_bytes(b"begun")
            try:
                answer = pickle.dumps((True, function(*arguments, **keywords)))
            except Exception as error:
                answer = pickle.dumps((False, sendable(error)))
            except BaseException as error:  # raised by the simulator, because signals are blocked
                found = RuntimeError(in_a_line(error)).with_traceback(error.__traceback__)
                answer = pickle.dumps((False, sendable(found)))
            pipe.send_bytes(answer)


def _raise(error: BaseException) -> None:
    raise error


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)
