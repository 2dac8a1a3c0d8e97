"""The sparse kernel on threads, its counter of edges, and answers within the memory."""

import tracemalloc

import graphblas as gb
import numpy as np
import pytest

import gbdnn
from gbdnn.kernels import costs
from gbdnn.runtime.machine import machine


@pytest.mark.parametrize("nthreads", [1, 3, 8])
def test_the_parts_of_all_threads_fit_the_memory_together(nthreads, monkeypatch):
    """Of 12 bytes an entry, eight matrices of a part on each thread."""
    monkeypatch.setattr(costs, "PART", 1.0)
    W, memory, records = gbdnn.Layer(np.ones((50, 40), "f4")), 8 * 12 * 40 * 64, []
    X = gb.Matrix.from_dense(np.ones((2000, 50), "f4"))
    gbdnn.infer(
        gbdnn.Network([W]), X, engine="sparse", deduplicate=False, memory=memory,
        nthreads=nthreads, callback=records.append,
    )  # fmt: skip
    assert sum(record.inputs for record in records) == 2000
    most = max(record.entries for record in records)
    assert memory // 2 < 8 * 12 * most * min(nthreads, machine().cores) <= memory


WIDE = gb.Matrix.from_coo(np.arange(20), np.arange(20), 1.0, nrows=20, ncols=30_000, dtype="FP32")


@pytest.mark.parametrize("engine", ["auto", "full", "fused", "sparse"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_few_entries_of_dense_features_take_little_memory(engine, share):
    """Neither values nor a mask are allocated for all elements if few of them are nonzero."""
    X = np.zeros((2000, 20), np.float32)
    X[: round(share * 2000)] = np.eye(20, dtype="f4")[np.arange(round(share * 2000)) % 20]
    tracemalloc.start()
    Y = gbdnn.infer([WIDE], X, engine=engine, memory="16MiB")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert Y.nvals == np.count_nonzero(X)
    assert peak < 40 << 20  # of 300 MB
