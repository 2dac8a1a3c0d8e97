"""What divides work or memory: each neuron and input once, nothing outside, budgets kept.

For the machines of `machines.MACHINES`, any number of threads, layer width and number of inputs.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from machines import MACHINES, using

import gbdnn
from gbdnn import LayerInfo, errors
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine import sizes as choice
from gbdnn.kernels import costs
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.compiled import table
from gbdnn.kernels.full import FULL
from gbdnn.kernels.fused import FUSED

FULLY = settings(max_examples=80)
NAMES = st.sampled_from(list(MACHINES))
THREADS = st.sampled_from([1, 2, 3, 5, 8, 17, 64])
WIDTHS = st.one_of(st.integers(1, 130),
    st.builds(lambda k, by: 2**k + by, st.integers(6, 11), st.integers(-1, 1)))  # fmt: skip
INPUTS = st.integers(1, 700)


@FULLY
@given(NAMES, THREADS, WIDTHS, WIDTHS, INPUTS, st.integers(14, 30), st.sampled_from(["f4", "f8"]))
def test_blocks_of_a_single_window(name, threads, nrows, ncols, inputs, bits, dtype):
    info = LayerInfo((nrows, ncols), nrows * ncols // 2, 1.0, np.dtype(dtype))
    facts = choice.NetworkFacts.of(gbdnn.Network.lazy([info], lambda _: None))
    memory, lanes = 1 << bits, 128 // facts.dtype.itemsize
    least = 2 * AlignedBlock.size(facts.neurons, lanes, facts.dtype)
    assume(least <= memory)
    with using(name):
        found = choice.single_window(facts, inputs, threads, memory)
        width, workers = found.width, found.workers
        assert 1 <= workers * found.threads_each <= threads
        is_one = workers == 1 and choice.is_one_block(facts, inputs, memory)
        if inputs <= costs.SINGLES or found.threads_each > 1 or is_one:
            assert width == (1 if inputs <= costs.SINGLES else inputs)
            assert 2 * AlignedBlock.size(facts.neurons, width, facts.dtype) <= memory
            return
        assert width % (64 // facts.dtype.itemsize) == 0
        assert (workers - 1) * width < inputs  # no thread is without a block
        assert 2 * workers * AlignedBlock.size(facts.neurons, width, facts.dtype) <= memory


@FULLY
@given(NAMES, THREADS, WIDTHS, INPUTS, st.integers(12, 30), st.sampled_from([FUSED, FULL, None]))
def test_sizes_of_a_run(name, threads, neurons, inputs, bits, kernel):
    facts = choice.NetworkFacts.of(gbdnn.Network([np.ones((3, neurons), "f4")]))
    with using(name):
        try:
            found = choice.sizes(facts, inputs, threads, 1 << bits, kernel)
        except errors.ArgumentError:  # memory= is too small
            return
    assert found.width >= 1
    assert 1 <= found.workers * found.threads_each <= threads
    if kernel is not None:
        assert found.block == kernel.size(max(3, neurons), found.width, facts.dtype)
        assert kernel.at_once * found.workers * found.block <= 1 << bits


@pytest.mark.parametrize("neurons", [0, 5, 300])
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_no_two_shares_of_a_single_input_write_to_one_cache_line(neurons, dtype, density):
    random = np.random.default_rng(0)
    weights = random.random((50, neurons)) * (random.random((50, neurons)) < density)
    layer = gbdnn.Layer(weights, dtype=dtype)
    rows = SparseRows.from_matrix(layer.W.dup())
    single = table.prepare_rows(rows, layer.bias, layer, dense=density == 1)
    for count in (1, 2, 3, 8):
        shares = table.single_shares(single, count)
        first, ncols = shares["first"], shares["ncols"]
        assert (first[ncols > 0] * layer.dtype.itemsize % 64 == 0).all()
        assert [*(first + ncols)] == [*first[1:], neurons]
