"""Serve the page of `memes view` during a test."""

import threading
import time
import traceback
from contextlib import contextmanager
from queue import Queue

from memes.options.from_run import task_from_run
from memes.view.browser import browse


@contextmanager
def served(*paths, rebuild=task_from_run, **options):
    """Yield the address of a page, whose loop runs in a separate thread until the context ends."""
    found, stop = Queue(), threading.Event()

    def serve():
        try:
            browse(
                paths, rebuild, port=8420, ready=found.put, going=lambda: not stop.is_set(), **options
            )
            found.put(None)
        except BaseException as error:
            traceback.print_exc()
            found.put(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        url = found.get(timeout=60)
        if not isinstance(url, str):
            raise url
        yield url
    finally:
        stop.set()
        thread.join(timeout=60)
    ended = found.get(timeout=1)
    if ended is not None:
        raise ended


def eventually(look, seconds=60.0):
    """Call a function repeatedly until it returns a true value, and return this value."""
    end = time.monotonic() + seconds
    while True:
        found = look()
        if found or time.monotonic() > end:
            assert found, f"no true value within {seconds} seconds"
            return found
        time.sleep(0.1)
