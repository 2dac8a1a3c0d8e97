"""What blocks have, in the full kernel and the fused one: pools, threads, memory."""

import numpy as np
import pytest
from suitesparse_graphblas import ffi, lib

import gbdnn
from gbdnn import errors
from gbdnn.kernels import costs
from gbdnn.kernels.compiled import graphblas
from gbdnn.kernels.compiled.record import Record


@pytest.mark.parametrize("nthreads", [1, 3, 8])
def test_a_product_that_is_not_in_place_is_noticed(nthreads, monkeypatch):
    """GraphBLAS computes into new memory if there is no accumulator."""
    monkeypatch.setattr(costs, "NARROWEST", 1)
    found = graphblas.with_graphblas(np.dtype("f4"))
    record = graphblas.record_for(found, np.dtype("f4"))
    other = Record.joined([record])
    NULL, pointers = ffi.NULL, ", ".join(["void*"] * 7)
    mxm = ffi.callback(
        f"int({pointers})",
        lambda C, _, __, op, A, B, ___: lib.GrB_mxm(
            *(ffi.cast("GrB_Matrix", C), NULL, NULL, ffi.cast("GrB_Semiring", op)),
            *(ffi.cast("GrB_Matrix", A), ffi.cast("GrB_Matrix", B), NULL),
        ),
    )
    other.set(mxm=ffi.cast("void*", mxm))
    found.use_graphblas(other)
    try:
        with pytest.raises(errors.MissingPackageError, match="use engine='fused' or 'sparse'"):
            gbdnn.infer([np.eye(8)], np.eye(8), engine="full", dtype="FP32", nthreads=nthreads)
    finally:
        found.use_graphblas(record)
    Y = gbdnn.infer([np.eye(8)], np.eye(8), engine="full", dtype="FP32", nthreads=nthreads)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), np.eye(8))


@pytest.mark.parametrize(
    ("engine", "kernel"),
    [("graphblas", "full"), ("sparse", "sparse"), ("full", "full"), ("fused", "fused")],
)
def test_engine_and_kernel_are_reported(engine, kernel, caplog):
    """In the log at info level, and in the record of each layer."""
    records, W, X = [], np.ones((40, 40), "f4"), np.ones((40, 40), "f4")
    with caplog.at_level("INFO", logger="gbdnn.inference"):
        gbdnn.infer([W, W], X, engine=engine, callback=records.append)
        assert caplog.messages == [f"engine {engine}: {kernel} kernel"]
        assert {(each.engine, each.kernel) for each in records} == {(engine, kernel)}
        caplog.clear()
        gbdnn.infer([W, W], X, engine="fused")
        assert caplog.messages == ["engine fused: fused kernel in a single window"]


def test_inputs_that_died_are_reported_until_they_are_moved(monkeypatch):
    monkeypatch.setattr(costs, "MOVE_FULL", 1e9)
    X, bias, records = np.array([[1.0], [2], [3]]), [-1, 0, 0], []
    gbdnn.infer([np.eye(1)] * 3, X, bias=bias, engine="full", callback=records.append)
    table = gbdnn.per_layer(records)
    assert [table["inputs"].tolist(), table["alive"].tolist()] == [[3] * 3, [2] * 3]
