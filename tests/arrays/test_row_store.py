"""Rows that are kept until all have come, against a dictionary of rows."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gbdnn.arrays import row_store
from gbdnn.arrays.row_store import RowStore
from gbdnn.arrays.sparse_rows import SparseRows

NCOLS = 50


def some_rows(random, ids, *, iso=False):
    """Rows with these ids, some of them empty; and the same as a dictionary."""
    dense = np.where(random.random((len(ids), NCOLS)) < random.choice([0.1, 0.9]), 1, 0)
    dense[random.random(len(ids)) < 0.2] = 0
    values = dense * (0.5 if iso else random.integers(1, 99, dense.shape))
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(values, axis=1)))).astype(np.uint64)
    columns, entries = np.nonzero(values)[1].astype(np.uint64), values[values != 0].astype("f4")
    rows = SparseRows(indptr, columns, entries[:1] if iso else entries, NCOLS, np.array(ids))
    return rows, dict(zip(ids, values.tolist(), strict=True))


@pytest.mark.parametrize("large", [False, True], ids=["copied", "kept"])
@pytest.mark.parametrize("threads", [1, 4])
def test_all_rows_come_back(threads, large, monkeypatch):
    monkeypatch.setattr(row_store, "_CHUNK", 2000)  # several chunks, and rows larger than one
    monkeypatch.setattr(row_store, "_LARGE", 3000 if large else 1 << 40)
    random = np.random.default_rng(0)
    order = random.permutation(600)
    parts = [
        some_rows(random, ids.tolist(), iso=n % 7 == 0)
        for n, ids in enumerate(np.array_split(order[:550], 40))
    ]
    wanted = np.zeros((600, NCOLS))
    for _, known in parts:
        for i, row in known.items():
            wanted[i] = row
    store = RowStore(NCOLS, np.dtype("f4"))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(store.add, [rows for rows, _ in parts]))
    entries = np.count_nonzero(wanted)
    assert store.nbytes >= entries * 12
    kept = store.rows()
    assert len(kept) > 3
    found = SparseRows.stacked(kept, 600, NCOLS, np.dtype("f4")).matrix()
    assert kept == []
    assert found.nvals == entries
    np.testing.assert_array_equal(found.to_dense(fill_value=0), wanted)


def test_rows_that_others_follow():
    random = np.random.default_rng(1)
    rows, known = some_rows(random, list(range(0, 40, 2)))
    followed = np.arange(40)
    followed[1::2] = random.choice(followed[::2], 20)
    store = RowStore(NCOLS, np.dtype("f4"))
    for at in range(0, 20, 3):
        store.add(rows.sparse_rows(at, min(at + 3, 20)))
    found = SparseRows.stacked(store.rows(), 40, NCOLS, np.dtype("f4"), followed).matrix()
    np.testing.assert_array_equal(found.to_dense(fill_value=0), [known[i] for i in followed])
