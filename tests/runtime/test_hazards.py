"""Threads, forks, pending work and exceptions: what goes wrong on a second thread or day."""

import subprocess
import sys
import threading

import graphblas as gb
import numpy as np
import pytest
from conftest import narrow

import gbdnn
from gbdnn import errors
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


def python(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )


def test_a_forked_child_is_told_to_be_spawned():
    """One that is forked before the parent has run GraphBLAS may run it."""
    assert python(FORK).stdout.split() == ["0", "42"]


@pytest.mark.parametrize("all_needed", [False, True])
@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_an_error_on_a_thread_ends_all_and_reaches_the_caller(all_needed, error):
    ended, stopped, all_begun = [], threading.Event(), threading.Barrier(4)

    def work(k):
        all_begun.wait()
        if k == 1:
            raise error("stop")
        stopped.wait()
        ended.append(k)

    with pytest.raises(error, match="stop"):
        gbdnn_threads.on_threads(4, work, stop=stopped.set, all_needed=all_needed)
    assert sorted(ended) == [0, 2, 3]
    begun = []
    gbdnn_threads.on_threads(4, begun.append, stop=stopped.set, all_needed=all_needed)
    assert 0 in begun
    assert sorted(begun) == [0, 1, 2, 3] or not all_needed


@pytest.mark.parametrize("neurons", [3_000_000, pytest.param(12_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("engine", ["auto", "sparse"])
def test_layers_of_the_size_of_graphs(neurons, engine):
    """A path through a ring: no block of activations fits, the entries do."""
    step = np.arange(neurons)
    W = gb.Matrix.from_coo(
        step, (step + 1) % neurons, np.float32(0.5), nrows=neurons, ncols=neurons
    )
    layer = gbdnn.Layer(W, copy=False)
    X = gb.Matrix.from_coo([0, 1], [7, neurons - 1], np.float32(1), nrows=2, ncols=neurons)
    Y = gbdnn.infer(gbdnn.Network([layer] * 3), X, engine=engine, memory=64 << 20)
    assert [a.tolist() for a in Y.to_coo()] == [[0, 1], [10, 2], [0.125, 0.125]]


def test_an_input_that_does_not_fit_is_refused_with_the_number():
    net = gbdnn.Network([gbdnn.Layer(np.ones((2000, 2000), "f4"), clip=1.0)] * 2)
    X = np.ones((3, 2000), "f4")
    with pytest.raises(errors.ArgumentError, match=r"memory=50000 is too small: .* pass memory="):
        gbdnn.infer(net, X, engine="sparse", memory=50_000)
    Y = gbdnn.infer(net, X, engine="sparse", memory=200_000)  # one input at a time
    assert Y.nvals == 6000


def test_a_lazy_network_needs_a_reader():
    with pytest.raises(errors.ArgumentTypeError, match="read must be callable, not int"):
        gbdnn.Network.lazy([gbdnn.Layer(np.eye(2)).info], 3)


@pytest.mark.parametrize(
    ("engine", "threads"), [("full", (1, 2, 5)), ("fused", (1, 2, 5)), ("sparse", (1, 1))]
)
def test_where_bits_do_not_depend_on_threads(engine, threads, monkeypatch):
    """What the notes of `infer` promise, on sums that are not exact; narrow blocks for threads."""
    narrow(monkeypatch)
    random = np.random.default_rng(5)
    W = random.random((2000, 400)).astype("f4")
    X = random.random((40, 2000)).astype("f4")
    answers = [gbdnn.infer([W, W[:400]], X, engine=engine, nthreads=n) for n in threads]
    assert all(Y.isequal(answers[0]) for Y in answers)
    one = gbdnn.infer([W, W[:400]], X[:1], engine=engine, nthreads=1)
    assert one.isequal(answers[0][:1, :].new())


def test_what_cannot_be_shown_is_named():
    """An error of its own would hide what is wrong."""

    class Unshown:
        def __repr__(self):
            raise ValueError("assignment destination is read-only")

    with pytest.raises(errors.ArgumentTypeError, match=r"clip must be .* object of type .*Unshown"):
        gbdnn.infer([np.eye(2)], np.eye(2), clip=Unshown())
