"""The order of processors for pinning, by folders as the kernel has them; binding and back."""

import os
import threading

import pytest

from gbdnn.errors import ArgumentError
from gbdnn.runtime.cores import usable
from gbdnn.runtime.pinning import bound, compact


def kernel(folder, cpus):
    """Write the kernel's files of processors: node, package and core of each."""
    for cpu, (node, package, core) in cpus.items():
        place = folder / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{package}\n")
        (place / "core_id").write_text(f"{core}\n")
        (place.parent / f"node{node}").mkdir()
    return folder


def test_physical_cores_come_first_node_by_node(tmp_path):
    """Two nodes of two cores, numbered alternately; the second threads of cores are 4 to 7."""
    cpus = {k: (k % 2, k % 2, k % 4 // 2) for k in range(8)}
    folder = kernel(tmp_path, cpus)
    assert compact(range(8), folder) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert compact({1, 3, 5, 6}, folder) == [6, 1, 3, 5]  # of those that the process may use


def test_a_core_has_the_same_number_on_every_socket(tmp_path):
    """One node with two sockets: equal core numbers are different cores."""
    cpus = {0: (0, 0, 0), 1: (0, 0, 0), 2: (0, 1, 0), 3: (0, 1, 0)}
    assert compact(range(4), kernel(tmp_path, cpus)) == [0, 2, 1, 3]


def test_without_files_every_processor_is_a_core(tmp_path):
    assert compact({4, 0, 2}, tmp_path) == [0, 2, 4]


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
    before, order = os.sched_getaffinity(0), compact(usable())
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
