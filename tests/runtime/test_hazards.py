"""Threads, forks, pending work and exceptions: what goes wrong on a second thread or day."""

import threading

import numpy as np
import pytest
from calls import raises, raising
from shell import python

import gbdnn
from gbdnn import errors
from gbdnn.kernels.compiled.record import Record
from gbdnn.kernels.ranges import Ranges, compute
from gbdnn.runtime import threads as gbdnn_threads

FORK = """
import os
import numpy as np
import gbdnn
from gbdnn import errors
W = np.eye(4, dtype="f4")
for _ in range(2):
    child = os.fork()
    if child == 0:
        try:
            gbdnn.infer([W], W, engine="sparse", nthreads=2)
        except errors.ForkError as error:
            os._exit(42 if "spawn" in str(error) and isinstance(error, gbdnn.GbdnnError) else 43)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    gbdnn.infer([W], W, engine="sparse", nthreads=2)
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_forked_child_is_told_to_be_spawned(threads):
    """One that is forked before the parent has run GraphBLAS may run it.

    The parent's threads are those of the call or of the default.
    """
    assert python(FORK, OMP_NUM_THREADS=threads).stdout.split() == ["0", "42"]


BOUND = """
import os, signal, threading
import graphblas as gb
import numpy as np
import gbdnn
W = np.eye(8, dtype="f4")
run = gbdnn.compile([W], nthreads=2)
gb.Matrix.from_coo([0], [0], 1.0)[:1, :].new()
X = np.ones((5000, 8), "f4")
gbdnn.kernels.costs.HAND_OVER = 0.0  # two threads
child = os.fork()
if child == 0:
    from gbdnn.runtime.threads import on_threads
    signal.alarm(60)
    right, both = (run(X) == 1).all(), threading.Barrier(2)
    on_threads(2, lambda _: both.wait(60), stop=both.abort)
    os._exit(42 if right else 43)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_starts_threads_where_openmp_binds_them():
    """It cannot ask GraphBLAS to bind them first, and need not."""
    assert python(BOUND, OMP_PROC_BIND="true").stdout.split() == ["42"]


UNPICKLED = """
import os, pickle, shutil, sys
import numpy as np
import gbdnn
from gbdnn import errors, io
folder = sys.argv[1]
W = np.eye(4, dtype="f4")
gbdnn.save(gbdnn.Network([gbdnn.Layer(W)]), folder + "/net")
gbdnn.io.write_features(W, folder + "/X")
net = gbdnn.Network([gbdnn.Layer(W)])
sent = pickle.dumps([
    gbdnn.compile(net), net, gbdnn.load(folder + "/net"), io.open_features(folder + "/X"),
    io.open_features(folder + "/X")[:2], gbdnn.gallery.radixnet(1024, 6, lazy=True),
])
gbdnn.infer([W], W, engine="sparse", nthreads=2)
shutil.rmtree(folder + "/net")
shutil.rmtree(folder + "/X")
if os.fork() == 0:
    try:
        found = pickle.loads(sent)
    except BaseException as error:
        print("unpickling raises", repr(error), flush=True)
        os._exit(1)
    try:
        gbdnn.infer(found[1], W, engine="sparse")
    except errors.ForkError:
        print("ForkError", flush=True)
    os._exit(0)
os.wait()
"""


def test_unpickling_in_a_worker_computes_and_raises_nothing(tmp_path):
    """An error there leaves a worker of multiprocessing.Pool without an answer; calls raise it."""
    done = python(UNPICKLED, tmp_path, OMP_NUM_THREADS="2")
    assert done.stdout.split() == ["ForkError"], done.stderr


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_an_error_on_a_thread_ends_all_and_reaches_the_caller(error):
    ended, stopped, all_begun = [], threading.Event(), threading.Barrier(4)

    def work(k):
        all_begun.wait()
        if k == 1:
            raise error("stop")
        stopped.wait()
        ended.append(k)

    raises(error, "stop", gbdnn_threads.on_threads, 4, work, stop=stopped.set)
    assert sorted(ended) == [0, 2, 3]
    begun = []
    gbdnn_threads.on_threads(4, begun.append, stop=stopped.set)
    assert 0 in begun


def test_an_error_ends_ranges_of_rows():
    """No thread takes a further one."""
    some, fail = Ranges(np.arange(40), np.arange(1, 41)), raising(KeyError("stop"))
    raises(KeyError, "stop", compute, [(Record("dense", np.dtype("f4")), some)], lambda: fail, 1)
    assert some.begun[0] == some.count


def test_what_cannot_be_shown_is_named():
    """An error of its own would hide what is wrong."""

    class Unshown:
        def __repr__(self):
            raise ValueError("assignment destination is read-only")

    with pytest.raises(errors.ArgumentTypeError, match=r"clip must be .* object of type .*Unshown"):
        gbdnn.infer([np.eye(2)], np.eye(2), clip=Unshown())
