"""Features with very many rows, few of which have entries."""

from concurrent.futures import ThreadPoolExecutor

import graphblas as gb
import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors

ROWS = 2**40
W = np.array([[0.5, 0.0, 1.0], [1.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
IDS = [5, 2**20, 2**39, 2**40 - 1]
COLUMNS = [0, 1, 2, 0]
VALUES = [1.0, 2.0, 3.0, 0.0]


def features(nrows=ROWS, dtype="FP32"):
    return gb.Matrix.from_coo(IDS, COLUMNS, VALUES, nrows=nrows, ncols=3, dtype=dtype)


def transposed():
    return gb.Matrix.from_coo(COLUMNS, IDS, VALUES, nrows=3, ncols=ROWS, dtype="FP32").T


EXPECTED = [(5, 0, 0.5), (5, 2, 1.0), (2**20, 0, 2.0)]


@pytest.mark.parametrize("engine", ["auto", "graphblas", "sparse", "full", "fused"])
@pytest.mark.parametrize("X", [features(), features(dtype="INT8"), transposed()])
@pytest.mark.parametrize("nthreads", [1, 3])
def test_only_rows_with_entries_are_computed(engine, X, nthreads):
    Y = gbdnn.infer([W], X, engine=engine, dtype="FP32", nthreads=nthreads)
    assert (Y.shape, Y.dtype, Y.ss.format) == ((ROWS, 3), "FP32", "hypercsr")
    assert list(zip(*(each.tolist() for each in Y.to_coo()), strict=True)) == EXPECTED
    assert gbdnn.categories(Y).tolist() == [5, 2**20]


def test_on_workers_and_in_batches():
    with ThreadPoolExecutor(2) as pool:
        Y = gbdnn.infer([W], features(), executor=pool)
    (same,) = gbdnn.infer_batches([W], [X := features()])
    assert Y.nvals == 3
    assert Y.isequal(same)
    assert X.isequal(features(), check_dtype=True)


def test_no_entries():
    Y = gbdnn.infer([W, W], gb.Matrix("FP32", nrows=ROWS, ncols=3))
    assert (Y.shape, Y.nvals) == ((ROWS, 3), 0)


@pytest.mark.parametrize("function", [
    lambda X: gbdnn.infer([W], X, bias=0.5),  # every empty row has entries
    lambda X: next(gbdnn.infer_batches([W], [X], bias=0.5)),
    gbdnn.argmax,
    lambda X: gbdnn.io.write_features([X], "X"),
])  # fmt: skip
def test_what_is_dense_by_definition_names_the_remedy(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raises(errors.TooLargeError, r"X\[gbdnn\.categories\(X\), :\]\.new\(\)", function, features())
