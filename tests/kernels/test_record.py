"""Records of C structures refuse arrays and records that C does not read."""

import numpy as np
import pytest
from calls import raises

from gbdnn.kernels.compiled.loading import of_any_processor
from gbdnn.kernels.compiled.record import Record

REAL = np.dtype("f4")


def weights(array):
    return Record("layer", REAL, weights=array)


def counted(array):
    of_any_processor(REAL).count(array, 1, 1, 1, np.zeros(1, np.int64))


@pytest.mark.parametrize("use", [weights, counted])
def test_an_array_that_c_cannot_read_is_refused(use):
    use(np.ones(1, REAL))
    for other in (np.ones(1), np.ones(1, np.int32)):
        raises(TypeError, f"compiled code reads float, not {other.dtype}", use, other)
    raises(ValueError, "contiguous", use, np.ones(9, REAL)[::2])


def test_records_for_other_numbers_are_refused():
    layer = Record("layer", np.dtype("f8"), nrows=1)
    raises(TypeError, "struct layer", Record, "plan", REAL, table=layer)
    Record("plan", np.dtype("f8"), table=layer)
    # a function with another number of arguments
    raises(ValueError, r"zip\(\)", of_any_processor(REAL).count, None)
