"""Equal inputs of blocks are found in compiled code."""

import numpy as np
import pytest

from gbdnn.kernels import equality
from gbdnn.kernels.blocks import AlignedBlock, Block


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", [AlignedBlock, Block])
@pytest.mark.parametrize("nthreads", [1, 3, 8])
def test_as_numpy_compares(form, dtype, nthreads, monkeypatch):
    """Blocks have different widths.

    Of the pairs, some differ at the last neuron alone, and some in the order of activations alone.
    """
    monkeypatch.setattr(equality, "CALL", 1.0)  # several calls
    random, blocks = np.random.default_rng(0), []
    for inputs, width in ((5, 16), (40, 48), (1, 16), (64, 80)):
        Y = form(150, width, np.dtype(dtype))
        Y.array[:], Y.inputs = np.nan, np.arange(inputs)
        Y.filled[:] = 1
        Y.filled[0] = random.integers(1, 4, inputs)
        Y.filled[2] = 4 - Y.filled[0]
        Y.filled[-1] = random.integers(1, 3, inputs)
        blocks.append(Y)
    all_inputs = np.concatenate([Y.filled.T for Y in blocks])
    found = equality.Equality(blocks, nthreads)
    first, second = np.divmod(np.arange(len(all_inputs) ** 2), len(all_inputs))
    same = (all_inputs[first] == all_inputs[second]).all(axis=1)
    np.testing.assert_array_equal(found.pairs(first, second), same)
    marks = np.concatenate([found.marks(2), found.marks(4)[45:]])
    np.testing.assert_array_equal(marks, found.marks(4))
    equal_in_sample = all_inputs[first, 0] == all_inputs[second, 0]
    np.testing.assert_array_equal(marks[first] == marks[second], equal_in_sample)
