"""Cores: by affinity and by the quota of a control group, on files as Linux writes them."""

import os

import pytest
from shell import python

from gbdnn.runtime import cores as module
from gbdnn.runtime.cores import cores


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 64 cores, of which this process may use 16; make its control groups."""

    def made(of_process, **files):
        (tmp_path / "self").write_text(of_process)
        for name, text in files.items():
            path = tmp_path / "fs" / name.replace("__", "/").replace("_max", ".max")
            path = path.with_name(path.name.replace("cfs", "cpu.cfs"))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    monkeypatch.setattr(module, "_SELF", tmp_path / "self")
    monkeypatch.setattr(module, "_MOUNTED", tmp_path / "fs")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3, 19)), raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    return made


def test_without_control_groups(machine):
    assert (cores(), cores(bound=False)) == (16, 64)


def test_without_affinity(machine, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert cores() == 64


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu_max": "200000 100000\n"}, (2, 2)),  # a container sees its own group as the root
        ({"cpu_max": "250000 100000\n"}, (3, 3)),
        ({"cpu_max": "10000 100000\n"}, (1, 1)),
        ({"cpu_max": "3200000 100000\n"}, (16, 32)),
        ({"cpu_max": "max 100000\n"}, (16, 64)),
        ({"a__b__cpu_max": "500000 100000\n", "a__cpu_max": "400000 50000\n"}, (5, 5)),
        ({"a__b__cpu_max": "max 100000\n", "a__cpu_max": "400000 50000\n"}, (8, 8)),
        ({"other__cpu_max": "100000 100000\n"}, (16, 64)),
        ({"cpu_max": "what is this\n"}, (16, 64)),
        ({"cpu_max": "0 100000\n"}, (16, 64)),
    ],
)
def test_version_2(machine, files, expected):
    machine("0::/a/b\n", **files)
    assert (cores(), cores(bound=False)) == expected


def test_the_name_of_a_group_has_a_colon(machine):
    machine("0::/a:b\n", **{"a:b__cpu_max": "200000 100000\n"})
    assert cores() == 2


@pytest.mark.parametrize(
    ("quota", "folder", "expected"),
    [
        ("300000", "cpu__docker__x__", 3), ("300000", "cpu__", 3), ("-1", "cpu__docker__x__", 16),
        ("300000", "memory__", 16),
    ],
)  # fmt: skip
def test_version_1(machine, quota, folder, expected):
    files = {f"{folder}cfs_quota_us": f"{quota}\n", f"{folder}cfs_period_us": "100000\n"}
    machine("5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/\n", **files)
    assert cores() == expected


def test_a_process_that_cannot_tell(machine):
    machine("nonsense\n")
    assert cores() == 16


THREADS = """
import os
from pathlib import Path
from gbdnn.runtime import cores
cores._SELF, cores._MOUNTED = Path({0!r}), Path({1!r})
os.sched_getaffinity = lambda _: set(range(8))
{2}
from gbdnn.runtime.threads import available
print(available())
"""


@pytest.mark.parametrize(
    ("threads", "expected"),
    [(None, 3), pytest.param("7", 7, marks=pytest.mark.slow)],  # the user's word
)
def test_graphblas_has_no_more_threads_than_the_quota(tmp_path, threads, expected, monkeypatch):
    (tmp_path / "self").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text("300000 100000\n")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    # As OpenMP has it on eight cores.
    before = "" if threads else "import graphblas as gb; gb.ss.config['nthreads'] = 8"
    code = THREADS.format(str(tmp_path / "self"), str(tmp_path), before)
    given = {"OMP_NUM_THREADS": threads} if threads else {}
    assert int(python(code, **given).stdout) == expected


BOUND = """
import os, threading
before = os.sched_getaffinity(0)
import gbdnn, graphblas as gb
from gbdnn.runtime.threads import engaged, on_threads

def work(number):
    barrier.wait()
    with engaged(1):
        gb.semiring.plus_times(A @ A[:, :10]).new()
    barrier.wait()
    places[number] = os.sched_getaffinity(0)

A = gb.Matrix.from_coo(range(1000), range(1000), 1.0)
A[:10, :].new()  # OpenMP has bound this thread
barrier, places = threading.Barrier(3), {}
on_threads(3, work, stop=barrier.abort)
print(len(before), *(len(places[number]) for number in range(3)))
"""


@pytest.mark.parametrize("bind", ["true", "false"])
def test_other_threads_leave_the_first_ones_core(bind):
    """Else OpenMP binds all of them to it, or Linux wakes them there."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) == 1:
        pytest.skip("there is one core, or threads cannot be bound")
    before, _, *others = map(int, python(BOUND, OMP_PROC_BIND=bind).stdout.split())
    assert others == [before - 1, before - 1]


def test_cores_of_a_process_whose_first_thread_is_bound(monkeypatch):
    monkeypatch.setattr(module, "_AT_FIRST", {0, 1, 2, 3})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2}, raising=False)
    monkeypatch.setenv("OMP_PROC_BIND", "close")
    assert cores(limited=False) == 4
    for nothing in ("false", ""):
        monkeypatch.setenv("OMP_PROC_BIND", nothing)
        assert cores(limited=False) == 1
    monkeypatch.setenv("OMP_PLACES", "cores")
    assert cores(limited=False) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {7}, raising=False)
    assert cores(limited=False) == 1  # bound by somebody else
