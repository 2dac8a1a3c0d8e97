"""Records of C structures keep the arrays whose addresses they store."""

import gc
import weakref

import numpy as np

from gbdnn.kernels.compiled.record import Record


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
