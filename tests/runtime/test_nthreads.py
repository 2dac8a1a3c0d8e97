"""`nthreads=` is in force wherever a call works: layers and features that are made ours, too."""

from types import SimpleNamespace

import graphblas as gb
import numpy as np
import pytest
import scipy.sparse as sp

import gbdnn
from gbdnn.runtime import threads
from gbdnn.runtime.threads import available

W, X = np.eye(6, dtype="f4"), np.ones((5, 6), "f4")
E = np.eye(300, dtype="f4")  # a matrix so large is read where it is


class Observed(list):
    """The threads that GraphBLAS may use, whenever somebody asks for something."""

    def call(self, *_):
        self.append(available())

    def layers(self):
        for _ in range(2):
            self.append(available())
            yield W

    def lazy(self):
        layer = gbdnn.Layer(W)

        def read(k):
            self.append(available())
            return layer

        return gbdnn.Network.lazy([layer.info] * 2, read)

    def sparse(self):
        """Features whose rows are asked for as they are converted."""
        outer = self

        class Features(sp.csr_array):
            def copy(self):
                outer.append(available())
                return super().copy()

        return Features(X)


@pytest.fixture
def observed(on):
    on("Zen 3, 16 cores")  # runs take no more threads than cores
    assert available() != 6
    yield Observed()
    assert available() != 6


CALLS = {
    "infer": lambda o, **n: gbdnn.infer(o.layers(), o.sparse(), **n),
    "infer, lazy": lambda o, **n: gbdnn.infer(o.lazy(), X, **n),
    "infer, no layers": lambda o, **n: gbdnn.infer([], o.sparse(), **n),
    "infer, cast": lambda o, **n: gbdnn.infer(o.lazy(), o.sparse(), dtype="FP64", **n),
    "infer, callback": lambda o, **n: gbdnn.infer(
        [E], gb.Matrix.from_dense(E, missing_value=0), engine="fused", callback=o.call, **n
    ),
    "infer_batches": lambda o, **n: list(gbdnn.infer_batches(o.layers(), [o.sparse()], **n)),
    "compile": lambda o, **n: gbdnn.compile(o.layers(), **n),
    "compile, lazy": lambda o, **n: gbdnn.compile(o.lazy(), **n),
    "train": lambda o, **n: gbdnn.train(o.lazy(), o.sparse(), X, epochs=1, **n),
}


@pytest.mark.parametrize("call", CALLS)
def test_threads_of_a_call_are_those_of_all_that_it_does(call, observed):
    CALLS[call](observed, nthreads=6)
    assert observed
    assert set(observed) == {6}


def test_threads_of_a_call_without_workers_are_those_of_what_it_reads(observed, tmp_path):
    gbdnn.infer_to_store(observed.layers(), observed.sparse(), tmp_path / "Y", nthreads=6)
    assert set(observed) == {6}


@pytest.mark.frameworks
def test_threads_of_a_pipeline(observed):
    pytest.importorskip("mpi4py")
    gbdnn.distributed.pipeline(observed.layers(), observed.sparse(), nthreads=6)
    gbdnn.distributed.pipeline(observed.lazy(), X, nthreads=6)
    assert set(observed) == {6}


def test_available_without_the_private_name(monkeypatch):
    """Another version of python-graphblas may not have it."""
    graphblas = SimpleNamespace(ss=gb.ss, core=SimpleNamespace(ss=SimpleNamespace(context=None)))
    monkeypatch.setattr(threads, "gb", graphblas)
    with gb.ss.Context(nthreads=6):
        assert available() == 6
