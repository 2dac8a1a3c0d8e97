"""Calls of compiled code on several threads, and the helpers that take part in them."""

import _thread
import os

import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn.kernels import costs, together
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import Record, constant
from gbdnn.runtime import threads as threads_module


@pytest.fixture(autouse=True)
def teams(monkeypatch):
    """No team is left from other tests."""
    monkeypatch.setattr(together, "_idle", together.defaultdict(list))
    monkeypatch.setattr(together, "openmp_team", lambda _: None)
    return together._idle


def empty_job():
    """Return a function, and a job without layers."""
    counters = np.zeros(constant("PROGRESS"), np.int64)
    dtype = np.dtype(np.float32)
    return required(dtype).share_block, Record("job", dtype, counters=counters)


def test_threads_of_the_system_are_used_as_far_as_they_can_be_started(monkeypatch):
    started, start = [], _thread.start_new_thread

    def limited(work, arguments):
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(work)
        start(work, arguments)

    monkeypatch.setattr(_thread, "start_new_thread", limited)
    function, job = empty_job()
    assert [together.startable(n) for n in (1, 8, 3)] == [1, 3, 3]
    together.together(8, function, job)
    with pytest.raises(RuntimeError, match="can't start 8 threads"):
        together.together(8, function, job, all_needed=True)
    assert len(started) == 2
    W = np.eye(4, dtype="f4")
    monkeypatch.setattr(costs, "HAND_OVER", 0.0)
    X = np.random.default_rng(0).random((900, 4), "f4")
    np.testing.assert_array_equal(gbdnn.compile([W], nthreads=8)(X), X)
    assert gbdnn.train([W], X, X, epochs=1, nthreads=8).history[-1].loss < 1e-3


@pytest.mark.parametrize("call", [
    lambda: together.startable(2),
    lambda: threads_module.on_threads(2, lambda _: None, stop=lambda: None),
])  # fmt: skip
def test_a_helper_that_cannot_begin_raises_for_the_caller(call, monkeypatch):
    def fail():
        raise MemoryError("no more")

    monkeypatch.setattr(threads_module, "unbind", fail)
    monkeypatch.setattr(threads_module, "_idle", [])
    raises(MemoryError, "no more", call)


def test_helpers_that_sleep_wake_on_other_cores(monkeypatch, teams):
    """Linux often wakes a thread on the core of the thread that wakes it."""
    function, job = empty_job()
    together.startable(3)
    (team,) = teams[4]
    moved = []
    monkeypatch.setattr(threads_module, "usable", lambda: {5, 7, 9})
    monkeypatch.setattr(threads_module, "_core", lambda: 9)
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: moved.append(given), raising=False)
    for may_move, expected in ((0, 0), (1, 3), (1, 3)):
        monkeypatch.setattr(team, "_may_move", lambda _, n=may_move: n)
        together.together(3, function, job)
        assert len(moved) == expected
    assert [cores for _, cores in moved] == [{5, 7}] * 3


def test_helpers_that_sleep_are_moved_once(teams):
    """And again if the caller is on another core, as the system may have it now and then."""
    together.startable(2)
    cores = getattr(os, "sched_getaffinity", lambda _: [0])(0)
    assert len(cores) == 1 or any(teams[2][0]._may_move(2) for _ in range(10**7))  # it sleeps
    assert not all(teams[2][0]._may_move(2) for _ in range(100))


def test_any_numbers_of_threads_need_few_helpers(teams):
    """Calls with more blocks have more threads."""
    function, job = empty_job()
    before = _thread._count()
    for _ in range(2):
        for threads in range(2, 17):
            together.together(threads, function, job)
    assert _thread._count() - before == 1 + 3 + 7 + 15
