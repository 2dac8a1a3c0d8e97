"""The sparse kernel on threads, its counter of edges, and answers within the memory."""

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


def test_a_part_on_one_of_several_threads_has_all_the_memory():
    W, X, records = np.ones((50, 40), "f4"), np.ones((60, 50), "f4"), []
    options = {"engine": "sparse", "deduplicate": False, "nthreads": 3}
    gbdnn.infer([W], X, memory=8 * 12 * 40 * 64, callback=records.append, **options)
    assert [record.inputs for record in records] == [60]


def test_rows_of_one_value_that_do_not_fit_the_memory(monkeypatch):
    """Of a matrix that is read where it is: they leave before the first layer."""
    X = np.zeros((2000, 50), "f4")
    X[:, 0], X[:60] = 2, 2
    A = gb.Matrix.from_coo(*np.nonzero(X), np.float32(2), nrows=2000, ncols=50)
    assert A.ss.is_iso
    W = np.eye(50, dtype="f4")
    Y = gbdnn.infer([W], A, engine="sparse", deduplicate=False, memory=60_000, nthreads=1)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), X)
