"""Records of C structures keep the arrays that they point to, and refuse others than C reads."""

import gc
import weakref

import numpy as np
import pytest

from gbdnn.kernels.compiled.loading import of_any_processor
from gbdnn.kernels.compiled.record import Record

REAL = np.dtype("f4")


class Kept(np.ndarray):
    """An array with weak references."""


def test_a_record_keeps_its_arrays_and_records():
    array = np.arange(3).view(Kept)
    reference, layer = weakref.ref(array), Record("layer", REAL, indptr=array)
    outer = Record("plan", REAL, table=Record.joined([layer, layer]))
    del array, layer
    gc.collect()
    assert reference() is not None
    del outer
    gc.collect()
    assert reference() is None


def test_structures_are_copied_one_after_the_other():
    two = Record("layer", REAL, 2, nrows=3, weights=np.ones(2, REAL))
    found = Record.joined([Record("layer", REAL), two])
    np.testing.assert_array_equal(found["nrows"], [0, 3, 0])
    assert found.all[1].weights[1] == 1
    found.set_each(edges=(4, 5, 6), weights=[two.kept["weights"]] * 3)
    np.testing.assert_array_equal(found["edges"], [4, 5, 6])
    assert [layer.weights[1] for layer in found.all] == [1, 1, 1]


def weights(array):
    return Record("layer", REAL, weights=array)


def counted(array):
    of_any_processor(REAL).count(array, 1, 1, 1, np.zeros(1, np.int64))


@pytest.mark.parametrize("use", [weights, counted])
def test_an_array_that_c_cannot_read_is_refused(use):
    use(np.ones(1, REAL))
    for other in (np.ones(1), np.ones(1, np.int32)):
        with pytest.raises(TypeError, match=f"compiled code reads float, not {other.dtype}"):
            use(other)
    with pytest.raises(ValueError, match="contiguous"):
        use(np.ones(9, REAL)[::2])


def test_records_for_other_numbers_are_refused():
    layer = Record("layer", np.dtype("f8"), nrows=1)
    with pytest.raises(TypeError, match="struct layer"):
        Record("plan", REAL, table=layer)
    Record("plan", np.dtype("f8"), table=layer)
    with pytest.raises(ValueError, match=r"zip\(\)"):  # a function with another number of arguments
        of_any_processor(REAL).count(None)
