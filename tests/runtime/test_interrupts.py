"""Exceptions of signal handlers: they may be raised between any two instructions."""

import gc
import signal
import sys
from collections import deque
from contextlib import suppress
from threading import Barrier
from time import sleep
from weakref import ref

import numpy as np
import pytest
from calls import raises, raising
from shell import python

import gbdnn
from gbdnn import errors
from gbdnn.io.reading import read_errors
from gbdnn.runtime import threads

IMPORTS = """
import sys
import graphblas as gb
import numpy as np
import scipy.sparse as sp
import gbdnn

left = None

def interrupted(unclaim):
    def unclaim_buffer(array):
        global left
        if left is not None:
            left -= 1
            if not left:
                raise KeyboardInterrupt
        unclaim(array)
    return unclaim_buffer

gb.Matrix
for module in (gb.core.ss.matrix, gb.core.ss.vector):
    module.unclaim_buffer = interrupted(module.unclaim_buffer)

rng = np.random.default_rng(0)
W = [sp.random_array((300, 300), density=0.05, rng=rng, dtype="f4") for _ in range(3)]
X = sp.random_array((700, 300), density=0.3, rng=rng, dtype="f4")
b = np.linspace(-1, 1, 300).astype("f4")

many = gb.Matrix.from_coo([5], [7], 1.0, nrows=1 << 40, ncols=300)

def networks(engine):
    return lambda: gbdnn.infer(W, X, engine=engine, bias=[b] * 3)

CALLS = {
    **{engine: networks(engine) for engine in ("sparse", "full")},
    "many rows": lambda: gbdnn.infer(W, many),
    "spmm": lambda: gbdnn.graph.spmm(W[0], X.toarray()[:300], engine="graphblas"),
    "compact": lambda: gbdnn.training.compact([
        gbdnn.Layer(sp.coo_array(([1.0], ([0], [1])), (3, 3)), bias=1.0), gbdnn.Layer(np.eye(3))
    ]),
}
for name, call in CALLS.items():
    raised = 0
    for k in range(1, 40):
        left = k
        try:
            call()
        except KeyboardInterrupt:
            raised += 1
        finally:
            is_over, left = left > 0, None
        call()
        if is_over:
            break
    print(name, bool(raised and is_over), flush=True)
"""


def test_memory_that_moves_into_graphblas_is_not_freed_twice():
    """An exception is raised at every array of a call for which NumPy is told that it lost it."""
    done = python(IMPORTS)
    assert done.returncode == 0, (done.stdout, done.stderr)
    ended = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines()]
    assert [name for name, met in ended if met != "True"] == []
    assert len(ended) == 5


class Interrupter:
    """Raises KeyboardInterrupt at the n-th line of some modules in this thread."""

    def __init__(self, n, *modules, but=()):
        self.left, self.files, self.but = n, {each.__file__ for each in modules}, but

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self)
        return self

    def __exit__(self, *_):
        sys.settrace(self.before)

    def __call__(self, frame, event, _):
        if frame.f_code.co_filename not in self.files or frame.f_code.co_name in self.but:
            return None
        if event == "line":
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt
        return self


@pytest.mark.parametrize("is_second", [False, True])
def test_no_call_runs_on_after_an_interrupt_at_any_line(is_second):
    """Memory that other threads use is freed when `on_threads` has returned."""
    for n in range(1, 500):
        begun, ended, all_begun = [], [], Barrier(3)

        def work(k, begun=begun, ended=ended, all_begun=all_begun):
            begun.append(k)
            if is_second:
                all_begun.wait(60)
            if k:
                sleep(0.01)
            ended.append(k)
            if is_second and not k:
                raise KeyboardInterrupt

        interrupter = Interrupter(n, threads)
        with suppress(KeyboardInterrupt), interrupter:
            threads.on_threads(3, work, stop=lambda: None)
        assert sorted(begun) == sorted(ended)
        assert len(set(map(id, threads._idle))) == len(threads._idle)
        together = Barrier(3)
        threads.on_threads(3, lambda _, b=together: b.wait(60), stop=lambda: None)
        if interrupter.left > 0:
            break
    assert 60 < n < 499


class LateError(Exception):
    """Raised by the handler of a signal."""


class Slow:
    """An array-like whose conversion a signal interrupts."""

    dtype = np.dtype(float)

    def __array__(self, *_, **__):
        signal.raise_signal(signal.SIGUSR1)
        return np.eye(3)

    def __repr__(self):
        return str(self.__array__())


CONVERSIONS = {
    "features": lambda: gbdnn.infer([np.eye(3)], Slow()),
    "bias": lambda: gbdnn.Layer(np.eye(3), bias=Slow()),
    "an error's text": lambda: gbdnn.infer([np.eye(3)], np.eye(3), clip=Slow()),
    "reading": lambda: read_late(),
}


def read_late():
    with read_errors("file"):
        signal.raise_signal(signal.SIGUSR1)


@pytest.mark.parametrize("kind", [TimeoutError, LateError])
@pytest.mark.parametrize("call", CONVERSIONS)
def test_a_handlers_exception_is_no_error_of_the_input(call, kind):
    before = signal.signal(signal.SIGUSR1, raising(kind("too late")))
    try:
        raises(kind, "too late", CONVERSIONS[call])
    finally:
        signal.signal(signal.SIGUSR1, before)


N = 64
HUGE = np.eye(N, dtype="f4") * 1e30
FAILING = {
    "full": lambda X: gbdnn.infer([HUGE] * 3, X, engine="full", nthreads=2),
    "sparse": lambda X: gbdnn.infer([HUGE] * 3, X, engine="sparse", nthreads=2),
    "one": lambda X: gbdnn.infer([HUGE] * 3, X[:1]),
    "batches": lambda X: list(gbdnn.infer_batches([HUGE] * 3, [X], engine="full", nthreads=2)),
    "spmm": lambda X: gbdnn.graph.spmm(np.full((100, 100), 1e30, "f4"), X, engine="full"),
}


@pytest.mark.parametrize("call", FAILING)
def test_an_error_keeps_no_memory_of_the_call(call):
    """Not even until garbage is collected, which counts objects and not bytes."""
    X = np.full((100, N), 1e30, "f4")
    reference = ref(X)
    gc.collect()
    gc.disable()
    try:
        with suppress(errors.NonFiniteError):
            FAILING[call](X)
            pytest.fail("no error")
        del X
        assert reference() is None
    finally:
        gc.enable()


def nothing():
    pass


def a_context_within():
    threads.share(1, deque([0]), list, nthreads=1)


@pytest.mark.parametrize("within", [nothing, a_context_within])
def test_the_context_of_before_is_in_force_wherever_a_call_is_interrupted(within):
    """At every line of engaging and disengaging; the exception is not replaced by another one."""
    from graphblas.core import lib
    from graphblas.core.ss import context

    def is_engaged():
        """Whether GraphBLAS itself uses `own`: it refuses to disengage others."""
        other = context.Context(engage=False)
        refused = lib.GxB_Context_disengage(other.gb_obj[0]) != lib.GrB_SUCCESS
        return refused and lib.GxB_Context_disengage(own.gb_obj[0]) == lib.GrB_SUCCESS

    with context.Context(engage=False, nthreads=3) as own:
        for line in range(1, 500):
            interrupter = Interrupter(line, context, threads, but=["__del__", "__init__"])
            with suppress(KeyboardInterrupt), interrupter, threads.restored(), threads.engaged(5):
                within()
            assert context.threadlocal.context is own, line
            assert threads.available() == 3
            assert is_engaged(), line
            own.engage()
            if interrupter.left > 0:
                break
    assert 20 < line < 499
