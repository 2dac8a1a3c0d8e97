"""Binding the process to processors, and back."""

import os
import threading

import pytest

from gbdnn.errors import ArgumentError
from gbdnn.runtime.cores import usable
from gbdnn.runtime.pinning import bound
from gbdnn.runtime.topology import ordered


@pytest.fixture
def waiting():
    """Another thread, which is there before the process is bound."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    yield thread
    stop.set()
    thread.join()


def test_every_thread_is_bound_and_gets_its_affinity_back(waiting, monkeypatch):
    for name in ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"):
        monkeypatch.delenv(name, raising=False)
    before, order = os.sched_getaffinity(0), ordered(usable())
    stop = threading.Event()
    with bound(1):
        for task in (0, waiting.native_id):
            assert os.sched_getaffinity(task) == {order[0]}
        late = threading.Thread(target=stop.wait)
        late.start()
        assert os.sched_getaffinity(late.native_id) == {order[0]}
    for task in (0, waiting.native_id, late.native_id):
        assert os.sched_getaffinity(task) == before
    stop.set()
    late.join()


def test_what_cannot_be_bound(monkeypatch):
    with pytest.raises(ArgumentError, match="needs 1000000 processors"), bound(10**6):
        pass
    monkeypatch.setenv("OMP_PROC_BIND", "true")
    with pytest.raises(ArgumentError, match="OMP_PROC_BIND"), bound(1):
        pass
