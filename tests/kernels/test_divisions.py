"""What divides work or memory: each neuron and input once, nothing outside, budgets kept.

For the machines of `machines.MACHINES`, any number of threads, layer width and number of inputs.
"""

import numpy as np
import pytest
from conftest import network
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from machines import MACHINES, using
from oracles import Dense

import gbdnn
from gbdnn import LayerInfo, errors
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.executors import batches
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
DENSITIES = st.sampled_from([0.0, 0.03, 0.3, 0.6, 1.0])
SEEDS = st.integers(0, 9)


def some_layer(nrows, ncols, density, seed, *, iso=False):
    random = np.random.default_rng(seed)
    W = random.integers(1, 9, (nrows, ncols)) / 8 * (random.random((nrows, ncols)) < density)
    return Dense(np.sign(W) if iso else W, random.integers(-8, 8, ncols) / 8, activation="relu")


def require_division(firsts, sizes, whole):
    """Consecutive ranges from 0 to `whole`."""
    ends = np.cumsum(sizes)
    assert (np.asarray(sizes) >= 0).all()
    np.testing.assert_array_equal(firsts, np.concatenate(([0], ends[:-1])))
    assert ends[-1] == whole


@FULLY
@given(WIDTHS, DENSITIES, THREADS, SEEDS, st.booleans())
@example(20, 1.0, 8, 0, False)  # shares of 24 columns
def test_shares_of_the_neurons_of_a_block(ncols, density, count, seed, iso):
    """Some columns have the same rows: each pair of them is in one share."""
    made = some_layer(11, ncols, density, seed, iso=iso)
    made.W[:, 1::2] = made.W[:, : ncols // 2 * 2 : 2]
    layer = network([made])[0]
    whole = FUSED.prepare(layer, None, None)
    record = table.shares(whole, count)  # owns the memory
    shares = [share for share in record.all if share.ncols]
    is_dense = whole.record.first.dense
    firsts = np.array([share.places - whole.record.first.places for share in shares])
    require_division(firsts, [share.ncols for share in shares], ncols)
    assert sum(share.edges for share in shares) == (11 * ncols if is_dense else layer.edges)
    assert is_dense or not whole.arrays["pairs"][firsts[firsts > 0] - 1].any()


@FULLY
@given(NAMES, THREADS, WIDTHS, WIDTHS, INPUTS, st.integers(14, 30), st.sampled_from(["f4", "f8"]))
def test_blocks_of_a_single_window(name, threads, nrows, ncols, inputs, bits, dtype):
    info = LayerInfo((nrows, ncols), nrows * ncols // 2, 1.0, np.dtype(dtype))
    facts = choice.NetworkFacts.of(gbdnn.Network.lazy([info], lambda _: None))
    memory, lanes = 1 << bits, 128 // facts.dtype.itemsize
    least = 2 * AlignedBlock.size(facts.neurons, lanes, facts.dtype)
    assume(least <= memory)
    with using(name):
        width, workers = choice.division(facts, inputs, threads, memory)
        assert 1 <= workers <= threads
        assert width >= 1
        assert width % (64 // facts.dtype.itemsize) == 0
        assert (workers - 1) * width < inputs  # no thread is without a block
        assert 2 * workers * AlignedBlock.size(facts.neurons, width, facts.dtype) <= memory


@FULLY
@given(NAMES, THREADS, WIDTHS, INPUTS, st.integers(12, 30), st.sampled_from([FUSED, FULL, None]))
def test_sizes_of_a_run(name, threads, neurons, inputs, bits, kernel):
    facts = choice.NetworkFacts.of(network([some_layer(3, neurons, 0.3, 0)]))
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


@FULLY
@given(st.lists(WIDTHS, min_size=1, max_size=30), st.integers(12, 24))
def test_groups_of_layers_of_a_network_on_disk(widths, bits):
    """Two groups take half of the memory."""
    infos = [network([some_layer(3, n, 0.3, 0)])[0].info for n in widths]
    neurons = max(3, *widths)
    facts = choice.NetworkFacts(True, 0, neurons, infos[0].dtype, in_memory=False, infos=infos)
    try:
        starts = choice.sizes(facts, 9, 2, 1 << bits, FUSED).starts
    except errors.ArgumentError:  # memory= is too small
        return
    ends = [*starts[1:], len(infos)]
    require_division(starts, np.subtract(ends, starts), len(infos))
    for first, last in zip(starts, ends, strict=True):
        assert 2 * sum(map(choice.layer_bytes, infos[first:last])) <= 1 << (bits - 1)


@FULLY
@given(NAMES, THREADS, WIDTHS, INPUTS, st.sampled_from([4, 8]), st.integers(1, 10**7))
def test_widths_of_blocks(name, threads, neurons, inputs, itemsize, each):
    with using(name):
        found = {
            costs.panel_width(neurons, itemsize): 16,
            costs.fused_width(neurons, itemsize, inputs, threads): 64 // itemsize,
            costs.direct_width(itemsize): 128 // itemsize,
        }
        for width, step in found.items():
            assert 0 < width <= 512
            assert width % step == 0
        rows = costs.block_rows(inputs, threads)
        assert -(-inputs // rows) >= min(threads, inputs // costs.NARROWEST)
        rows = costs.panel_rows(each, neurons, 100)
        assert 0 < rows <= neurons


@FULLY
@given(INPUTS, st.integers(1, 200), SEEDS)
def test_parts_of_rows(nrows, most, seed):
    degrees = np.random.default_rng(seed).integers(0, 9, nrows)
    degrees[::2] = degrees[nrows // 2 :] = 0  # empty rows count as well
    indptr = np.concatenate(([0], np.cumsum(degrees))).astype(np.uint64)
    rows = SparseRows(indptr, np.zeros(indptr[-1], np.uint64), np.ones(1, "f4"), 1)
    parts = list(rows.parts(most))
    np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), np.arange(nrows))
    assert all(part.nrows == 1 or max(part.nrows, part.nvals) <= most for part in parts)


@FULLY
@given(st.integers(1, 100_000), THREADS, st.one_of(st.none(), st.integers(1, 5000)))
def test_batches(inputs, workers, batch):
    found = batches.cuts(inputs, workers, batch)
    require_division(found[:-1], np.diff(found), inputs)
    assert (np.diff(found) > 0).all()
    assert len(found) == 2 or np.diff(found).min() >= (batch or batches.FEWEST)


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
