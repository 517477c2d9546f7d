"""Device calls: their length, their boundaries, and what the host does during a call."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from memes.runner import scheduling
from memes.runner.device import MOST
from memes.runner.scheduling import SIGNALS, interruptible
from memes.store.schema import RunConfig


class Device:
    """A simulated program whose generations take `cost` seconds on a simulated clock.

    If `blocks` is true, a call returns when its generations are done; otherwise, it returns immediately.
    If `jit` is true, the task is evaluated on the device; otherwise, it is evaluated on the host.
    """

    def __init__(self, monkeypatch, *, cost=1e-6, blocks=False, jit=True):
        self.clock, self.lengths, self.events = 0.0, [], []
        self.algorithm = SimpleNamespace(task=SimpleNamespace(jit=jit))
        self.cost, self.blocks, self.over = cost, blocks, {0: 0.0}  # end times by generation
        monkeypatch.setattr(scheduling.time, "perf_counter", lambda: self.clock)
        monkeypatch.setattr(scheduling, "wait", self._wait)

    def advance(self, key, state, n):
        self.lengths.append(n)
        self.events.append(("called", state))
        self.over[state + n] = max(self.clock, max(self.over.values())) + self.cost * n
        if self.blocks:
            self.clock = self.over[state + n]
        return state + n, state + n

    def _wait(self, record):
        self.events.append(("waited", record))
        self.clock = max(self.clock, self.over[record])

    def states(self, state):
        return [state]

    def records(self, record, n):
        return [record]


def config_of(generations, call_seconds):
    names = {"task": "none", "algorithm": "none", "seed": 0}
    return RunConfig(**names, generations=generations, call_seconds=call_seconds)


def call(device, generations, *, done=0, aim=1.0, due=lambda generation: False, going=lambda: True):
    config = config_of(generations, aim)
    seen = []
    for each in scheduling.calls(device, None, done, done, config, due, going):
        device.events.append(("seen", each.states[0]))
        seen.append(each)
    return seen


@pytest.mark.parametrize("generations", [1, 40, 1009])
@pytest.mark.parametrize("every", [1, 7, 60, 2000])
@pytest.mark.parametrize("cost", [0.0, 0.003, 5.0])
def test_calls_end_when_an_observer_is_due_and_cover_all_generations(
    monkeypatch, generations, every, cost
):
    device = Device(monkeypatch, cost=cost)
    call(device, generations, due=lambda generation: generation % every == 0)
    assert sum(device.lengths) == generations
    assert set(range(every, generations, every)) <= set(np.cumsum(device.lengths))
    assert max(device.lengths) <= min(MOST, every)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("cost", [1e-6, 0.0039, 0.03, 0.41, 20.0])
def test_calls_take_the_requested_time(monkeypatch, cost, blocks):
    """Calls grow from one generation until they take the requested time or have `MOST` generations."""
    device = Device(monkeypatch, cost=cost, blocks=blocks)
    seen = call(device, 5000, aim=2.0)
    wanted = np.clip(int(2.0 / cost), 1, MOST)
    assert device.lengths[0] == 1
    assert all(b <= 4 * a for a, b in zip(device.lengths, device.lengths[1:], strict=False))
    assert set(device.lengths[5:-1]) == {wanted}
    seconds = [each.seconds for each in seen]
    assert np.allclose(seconds, cost * np.array(device.lengths), rtol=1e-3)


def test_calls_get_shorter_if_the_machine_slows_down(monkeypatch):
    device = Device(monkeypatch, cost=0.01, blocks=True)

    def due(generation):
        device.cost = 0.01 if generation < 500 else 0.5
        return False

    call(device, 700, due=due)
    assert max(device.lengths) == 100
    assert max(device.lengths[-20:]) == 2


def test_a_time_of_zero_gives_calls_of_one_generation(monkeypatch):
    device = Device(monkeypatch)
    call(device, 20, aim=0.0)
    assert device.lengths == [1] * 20


class Waiting(Device):
    """A device whose calls, except the first, end only when the host has processed the previous call."""

    def advance(self, key, state, n):
        until = time.monotonic() + 10
        while state and ("seen", state) not in self.events:
            assert time.monotonic() < until, "the host waits for the device instead of the previous call"
            time.sleep(0.001)
        return super().advance(key, state, n)


def test_the_device_computes_the_next_call_while_the_host_processes_the_last(monkeypatch):
    device = Waiting(monkeypatch, blocks=True)
    assert [each.states[0] for each in call(device, 4, aim=0.0)] == [1, 2, 3, 4]


def test_the_device_is_idle_while_an_observer_is_due(monkeypatch):
    device = Device(monkeypatch)
    call(device, 6, aim=0.0, due=lambda generation: generation == 3)
    assert device.events.index(("seen", 3)) < device.events.index(("called", 3))


def test_calls_of_host_tasks_are_sequential_and_in_the_same_thread(monkeypatch):
    device, threads = Device(monkeypatch, blocks=True, jit=False), set()
    advance = device.advance

    def noted(*arguments):
        threads.add(threading.current_thread())
        return advance(*arguments)

    device.advance = noted
    call(device, 5, aim=0.0)
    assert [name for name, _ in device.events] == ["called", "waited", "seen"] * 5
    assert threads == {threading.current_thread()}


def test_an_exception_of_a_device_call_is_raised_on_the_host(monkeypatch):
    device = Device(monkeypatch)

    def advance(key, state, n):
        raise MemoryError("out of it")

    device.advance = advance
    with pytest.raises(MemoryError, match="out of it"):
        call(device, 5)


def test_the_time_of_a_call_excludes_the_work_of_the_host(monkeypatch):
    device = Device(monkeypatch, cost=0.5)
    seconds = []
    config = config_of(6, 0.0)
    for each in scheduling.calls(device, None, 0, 0, config, lambda generation: True, lambda: True):
        device.clock += 100.0  # a slow observer
        seconds.append(each.seconds)
    assert seconds == [0.5] * 6


def test_after_a_stop_only_a_first_generation_is_computed(monkeypatch):
    for done, expected in ((0, [1]), (3, [])):
        device = Device(monkeypatch)
        assert [each.states[0] for each in call(device, 10, done=done, going=lambda: False)] == expected


class Busy:
    """A result on the device that is never ready."""

    def is_ready(self):
        return False


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_interrupts_are_handled_while_the_device_computes(which):
    """The first signal is recorded. The second signal ends the wait, even if no result is ready."""
    messages = []
    # Set these handlers explicitly, because background processes of a shell ignore Ctrl-C.
    inherited = {each: signal.signal(each, signal.default_int_handler) for each in SIGNALS}
    try:
        with interruptible(messages.append, "stopping") as received:
            assert received() is None
            interrupts = [threading.Timer(s, os.kill, (os.getpid(), which)) for s in (0.05, 0.3)]
            for interrupt in interrupts:
                interrupt.start()
            with pytest.raises(KeyboardInterrupt):
                scheduling.wait([Busy()])
            assert received() == which.name
        for each in SIGNALS:
            assert signal.getsignal(each) is signal.default_int_handler
    finally:
        for each, handler in inherited.items():
            signal.signal(each, handler)
    assert messages == ["stopping"]


def test_a_second_signal_during_the_handling_of_the_first_interrupts():
    messages = []

    def say(sentence):
        messages.append(sentence)
        signal.raise_signal(signal.SIGINT)

    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible(say, "stopping"):
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert messages == ["stopping"]
