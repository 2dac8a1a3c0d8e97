"""Records of C structures keep the arrays whose addresses they store."""

import gc
import weakref

import numpy as np

from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.kernels import gather
from gbdnn.kernels.compiled.record import Record, address


class Kept(np.ndarray):
    """An array with weak references."""


def test_a_record_keeps_its_arrays_and_records():
    array = np.arange(3).view(Kept)
    reference, job = weakref.ref(array), Record("job", counters=array)
    outer = Record("plan", table=Record.joined([job, job]))
    del array, job
    gc.collect()
    assert reference() is not None
    del outer
    gc.collect()
    assert reference() is None


def test_members_of_a_graph_product_are_held_during_its_calls(monkeypatch):
    # Rows of many edges are summed in pieces, each with arrays of its own.
    monkeypatch.setattr(gather, "HEAVY", 5)
    monkeypatch.setattr(gather, "SHARE", 3)
    A, calls = np.ones((4, 9), "f4"), []
    product = gather.Gather(SparseRows.from_array(A), "sum", 3, "fused")
    compiled = product._compiled

    def checked(record, ranges, block):
        calls.append(record)
        places = [
            (address(x), x.nbytes) for x in record._kept.values() if isinstance(x, np.ndarray)
        ]
        for name in ("indptr", "columns", "weights", "Y", "start", "Z"):
            assert any(0 <= int(record.array[name][0]) - at <= size for at, size in places), name
        return compiled(record, ranges, block)

    product._compiled = checked
    Z = np.empty((4, 8), "f4")
    assert product.into(np.full((9, 8), 2, "f4"), Z, np.zeros(8, "f4"))
    assert len(calls) > 4
    np.testing.assert_array_equal(Z, 18)
