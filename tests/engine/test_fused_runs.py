"""The fused form by way of `gbdnn.infer`: the same bits whatever the blocks, and odd sizes."""

import itertools
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import assert_answer, narrow, network, reordered, scheduled
from oracles import Dense, case, dense_inference
from test_compression import converging
from test_full_form import dying
from test_fused import BOTH, NUMPY

import gbdnn
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.engine.block_run import Task
from gbdnn.engine.scheduler import BlockScheduler
from gbdnn.kernels.blocks import AlignedBlock
from gbdnn.kernels.buffers import Buffers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{}, {"clip": 2.0}])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_layer_of_an_overflow_is_named(dtype, options, sign):
    """Layer 2 overflows in one input of 90, and hides it: by a clip, or by the ReLU."""
    big = float(np.finfo(dtype).max) / 8
    keep, grow = np.eye(3), np.eye(3) * big
    grow[0, 0] *= sign
    layers = [gbdnn.Layer(W, dtype=np.dtype(dtype), clip=16.0) for W in (keep, keep)]
    layers += [gbdnn.Layer(W, dtype=np.dtype(dtype), **options) for W in (grow, keep)]
    X = np.zeros((90, 3))
    X[:, 1] = 0.5
    X[77, 0] = 15.0
    for nthreads in (1, 3):
        with pytest.raises(gbdnn.NonFiniteError, match="layer 2"):
            gbdnn.infer(gbdnn.Network(layers), X, engine="fused", nthreads=nthreads)
    X[77, 0] = 7.0
    if not options and sign > 0:
        Y = gbdnn.infer(gbdnn.Network(layers), X, engine="fused")
        assert Y[77, 0].value == 7 * dtype(big)


@BOTH
@pytest.mark.parametrize("memory", [None, 30_000, 60_000, 10**6])
def test_little_memory_makes_narrow_blocks_not_other_bits(dtype, memory):
    rough_case = case(9, exact=False, sizes=(50, 40, 30), inputs=300, density=0.1)
    net = network(rough_case.layers, dtype)
    whole = gbdnn.infer(net, rough_case.X, engine="fused")
    assert whole.nvals > 0
    options = {} if memory is None else {"memory": memory * (2 if dtype == "FP64" else 1)}
    for nthreads in (1, 4, 64):
        Y = gbdnn.infer(net, rough_case.X, engine="fused", nthreads=nthreads, **options)
        assert Y.isequal(whole)


@pytest.mark.parametrize("patches", [[], [narrow], [narrow, reordered]])
def test_bits_do_not_depend_on_neighbours(patches, monkeypatch):
    a_case = case(9, exact=False, sizes=(100, 90, 80, 70), inputs=90, density=0.1)
    net = network(a_case.layers)
    plain = gbdnn.infer(net, a_case.X, engine="fused", nthreads=1)
    for patch in patches:
        patch(monkeypatch)
    Y = gbdnn.infer(net, a_case.X, engine="fused", nthreads=3)
    if reordered in patches:  # edges are added in another order
        np.testing.assert_allclose(
            Y.to_dense(fill_value=0), plain.to_dense(fill_value=0), atol=1e-5
        )
    else:
        assert Y.isequal(plain)
    for rows in ([7], [80, 3, 4], range(20, 60)):
        part = gbdnn.infer(net, a_case.X[list(rows)], engine="fused")
        assert part.isequal(Y[list(rows), :].new())


@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("patches", [[], [narrow], [narrow, reordered]])
@pytest.mark.parametrize("compress", [True, False, "auto"])
def test_a_callback_changes_no_bit(nthreads, patches, compress, monkeypatch):
    for patch in patches:
        patch(monkeypatch)
    net, X = converging(layers=30)
    options = {"engine": "fused", "nthreads": nthreads, "compress": compress}
    plain = gbdnn.infer(net, X, **options)
    stats = []
    assert gbdnn.infer(net, X, callback=stats.append, **options).isequal(plain)
    assert {s.form for s in stats} == {"fused"}
    after = [s for s in stats if s.layer == 29]
    assert sum(s.live for s in after) == len(gbdnn.categories(plain)) > 0
    if compress is False:
        assert sum(s.entries for s in after) == plain.nvals
        expected = gbdnn.per_layer(stats)
        full = []
        gbdnn.infer(net, X, engine="full", compress=False, callback=full.append)
        for name in ("live", "distinct", "entries"):
            assert expected[name].tolist() == gbdnn.per_layer(full)[name].tolist()


def test_deep_networks_with_few_survivors(monkeypatch):
    """Blocks meet many times; survivors of all of them come out under their own ids."""
    narrow(monkeypatch)
    keep = range(0, 300, 11)
    layers, X = dying(300, at=17, layers=40, survivors=keep)
    for nthreads in (1, 4):
        Y = gbdnn.infer(network(layers), X, engine="fused", nthreads=nthreads, compress=False)
        np.testing.assert_array_equal(Y.to_dense(fill_value=0), dense_inference(layers, X))
        assert gbdnn.categories(Y).tolist() == list(keep)


@BOTH
@pytest.mark.parametrize(
    ("workers", "taken", "ready", "inputs", "expected"),
    [
        (2, 0, [], 200, [100, 100]),
        (2, 60, [], 200, [130, 70]),  # another thread has 60: 130 is half of all
        (2, 60, [40], 200, [150, 50]),
        (4, 0, [], 200, [50, 150]),  # the others divide what is left
        (2, 200, [], 200, [200]),
        (2, 150, [], 200, [200]),  # a part of 25 would be too narrow
        (3, 0, [], 90, [90]),
        (1, 0, [], 200, [200]),
    ],
)
def test_a_thread_takes_its_share_of_the_last_inputs(
    dtype, workers, taken, ready, inputs, expected
):
    scheduler = object.__new__(BlockScheduler)
    made = Buffers(NUMPY[dtype], 1 << 30, AlignedBlock, (5, 240))
    scheduler.buffers, scheduler.width, scheduler._workers = made, 240, workers
    scheduler._chain = SimpleNamespace(block=lambda buffers, k, width: buffers.get(5, width))
    scheduler.run = SimpleNamespace(numbers=itertools.count())
    scheduler._taken, scheduler._lock = taken, threading.Condition()
    scheduler._ready = [SimpleNamespace(inputs=each) for each in ready]
    block = made.get(5, 240)
    block.inputs = np.arange(1000, 1000 + inputs)
    block.array[:] = np.arange(5 * 240).reshape(5, 240)
    whole = block.filled.copy()
    with scheduler._lock:
        first = scheduler._share(Task(7, 0, block, fresh=False, inputs=inputs))
    parts = [first, *scheduler._ready[len(ready) :]]
    assert [part.inputs for part in parts] == expected
    assert all(part.k == 7 for part in parts)
    np.testing.assert_array_equal(np.hstack([part.block.filled for part in parts]), whole)
    ids = np.concatenate([part.block.inputs for part in parts])
    np.testing.assert_array_equal(ids, np.arange(1000, 1000 + inputs))


@pytest.mark.pairwise
@pytest.mark.parametrize("engine", ["fused", "full", "auto", "sparse"])
@BOTH
@pytest.mark.parametrize(
    "sizes", [(1, 1, 1), (1, 20, 1), (5, 0, 4), (0, 3, 4), (3, 4, 0), (3, 1, 40)]
)
@pytest.mark.parametrize("inputs", [0, 1, 17])
@pytest.mark.parametrize("bias", [0.5, -0.5])
def test_sizes_at_the_edge(engine, dtype, sizes, inputs, bias):
    layers = [Dense(np.ones(shape) / 4, bias) for shape in itertools.pairwise(sizes)]
    X = np.arange(inputs * sizes[0]).reshape(inputs, sizes[0]) / 8.0
    Y = gbdnn.infer(network(layers, dtype), X, engine=engine)
    assert Y.shape == (inputs, sizes[-1])
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), dense_inference(layers, X))


def test_forms_by_turns():
    """No block form has the rule of layers 1 and 4: inputs leave for them, and come back."""
    random = np.random.default_rng(6)
    W = random.integers(-4, 8, (6, 30, 30)) / 8 * (random.random((6, 30, 30)) < 0.2)
    rules = ["all", "entries", "all", "all", "entries", "all"]
    layers = [Dense(w, 0.125, rule, clip=4.0) for w, rule in zip(W, rules, strict=True)]
    X = random.integers(0, 8, (90, 30)) / 8
    stats = []
    Y = gbdnn.infer(network(layers), X, engine="fused", callback=stats.append)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), dense_inference(layers, X))
    forms = [{s.form for s in stats if s.layer == k} for k in range(6)]
    assert forms == [{"sparse"} if rule == "entries" else {"fused"} for rule in rules]


class OwnFeatures:
    """Features of a caller's own, as `infer` reads them."""

    def __init__(self, X, *, whole=np.uint64, step=1):
        self._X, self._whole, self._step = X.astype("f4"), whole, step
        self.nrows, self.ncols = X.shape
        self.nvals, self.largest, self.dtype = np.count_nonzero(X), np.inf, np.dtype("f4")

    def sparse_rows(self, start, stop):
        X = self._X[start:stop]
        rows, columns = np.nonzero(X)
        indptr = np.searchsorted(rows, np.arange(stop - start + 1))
        values = np.repeat(X[X != 0], self._step)[:: self._step]
        arrays = indptr.astype(self._whole), columns.astype(self._whole), values
        return SparseRows(*arrays, self.ncols, np.arange(start, stop))


@pytest.mark.parametrize("whole", [np.uint64, np.int64, np.int32])
@pytest.mark.parametrize("step", [1, 2])
def test_features_of_a_callers_own(whole, step):
    """Compiled code reads addresses: it gets arrays as it wants them."""
    a_case = case(2, inputs=90)
    X = OwnFeatures(a_case.X, whole=whole, step=step)
    assert_answer(gbdnn.infer(network(a_case.layers), X, engine="fused"), a_case)


@BOTH
@pytest.mark.parametrize("width", [8, 16, 32, 48])
def test_bytes_of_blocks_are_counted_as_they_are(dtype, width):
    """Rows are an odd number of cache lines apart, wider than the inputs are many."""
    buffers = Buffers(NUMPY[dtype], 10**5, AlignedBlock)
    held = [buffers.get(20, width) for _ in range(3)]
    assert buffers.allocated == sum(block.nbytes for block in held)
    assert held[0].nbytes == 20 * held[0].stride * NUMPY[dtype].itemsize
    for block in held:
        buffers.put(block)
    buffers.release()
    assert buffers.allocated == 0


@BOTH
@pytest.mark.parametrize("blocks", [3, 4, 7, 20])
@pytest.mark.parametrize("nthreads", [1, 4])
def test_blocks_stay_within_their_memory(dtype, blocks, nthreads, monkeypatch):
    scheduled(monkeypatch)
    most = []

    class Watched(Buffers):
        def get(self, *args):
            block = super().get(*args)
            most.append(self.allocated)
            return block

    monkeypatch.setattr("gbdnn.engine.choice.Buffers", Watched)
    layers, X = dying(600, at=3, survivors=range(0, 600, 5))
    memory = blocks * 16 * 40 * NUMPY[dtype].itemsize  # for blocks; as much for what waits
    net, options = network(layers, dtype), {"engine": "fused", "nthreads": nthreads}
    Y = gbdnn.infer(net, X, memory=2 * memory, **options)
    assert gbdnn.categories(Y).tolist() == list(range(0, 600, 5))
    assert 0 < max(most) <= memory


@pytest.mark.parametrize("compress", [True, False])
def test_a_callback_takes_no_further_pass_and_no_further_call(compress, monkeypatch):
    """Records come from what the compiled code counts, in the calls that a run makes anyway."""
    from gbdnn.kernels.fused_chain import FusedChain

    run, calls = FusedChain.run, []

    def counted(self, Y, first, last, *arguments, **options):
        calls.append((first, last))
        return run(self, Y, first, last, *arguments, **options)

    scheduled(monkeypatch)
    monkeypatch.setattr(FusedChain, "run", counted)
    net, X = converging(layers=30)
    options = {"engine": "fused", "nthreads": 1, "compress": compress}
    gbdnn.infer(net, X, **options)
    plain, stats = calls.copy(), []
    calls.clear()
    gbdnn.infer(net, X, callback=stats.append, **options)
    assert calls == plain
    assert len(calls) < len(stats) / 2
    assert all(each.seconds > 0 for each in stats)
