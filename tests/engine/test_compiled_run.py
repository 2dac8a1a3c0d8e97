"""The fused kernel's compiled run: any number of threads, slices, interrupts and memory."""

import gc
import signal
import threading
import weakref

import numpy as np
import pytest
import scipy.sparse as sp
from networks import converging
from patches import divided, narrow

import gbdnn
from gbdnn import errors
from gbdnn.engine import compiled_run
from gbdnn.kernels import costs, fused_run, together

THREADS = pytest.mark.parametrize("nthreads", [1, 3, 8])


class Interrupted(BaseException):
    pass


@THREADS
def test_an_exception_between_two_slices_ends_the_run(nthreads, monkeypatch):
    """Helpers leave; the threads are used again; the next calls work."""
    monkeypatch.setattr(fused_run, "SLICE", 1000)
    net, X = converging(1500, 30)
    expected = gbdnn.infer(net, X, engine="fused", nthreads=nthreads)
    own, count = threading.get_ident(), [0]

    def handler(*_):
        count[0] += 1
        if count[0] == 1:
            raise Interrupted

    between = together.in_slices

    def interrupted(record, threads, dtype, report):
        def noisy():
            if threading.get_ident() == own:
                signal.raise_signal(signal.SIGUSR1)
            report()

        return between(record, threads, dtype, noisy)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(fused_run, "in_slices", interrupted)
            for _ in range(20):
                count[0] = 0
                with pytest.raises(Interrupted):
                    gbdnn.infer(net, X, engine="fused", nthreads=nthreads)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not together._used
    assert gbdnn.infer(net, X, engine="fused", nthreads=nthreads).isequal(expected)


def test_the_memory_of_a_run_is_freed_at_its_end(monkeypatch):
    made, kind, begin = [], fused_run.CompiledRun, fused_run.CompiledRun.begin
    monkeypatch.setattr(kind, "begin", lambda run: (made.append(weakref.ref(run)), begin(run)))
    net, X = converging()
    gc.disable()
    try:
        assert gbdnn.infer(net, sp.csr_array(X), engine="fused").nvals
    finally:
        gc.enable()
    assert [ref() for ref in made] == [None]


def leaving(inputs):
    """Layers of which every third needs the sparse kernel, and inputs; all sums are exact."""
    random, made = np.random.default_rng(0), []
    for k in range(13):
        W = random.choice([-1, 1, 1, 2], (31, 31)) * (random.random((31, 31)) < 0.2)
        rule, bias = ("entries", 0.5) if k % 3 == 1 else ("all", -0.5)
        made.append(gbdnn.Layer(W.astype("f4"), bias, bias_rule=rule, clip=8.0))
    X = random.integers(0, 3, (inputs, 31)) * (random.random((inputs, 31)) < 0.3)
    return gbdnn.Network(made), X.astype("f4")


@THREADS
@pytest.mark.parametrize("deduplicate", [False, True])
def test_rows_that_leave_in_turns(nthreads, deduplicate, monkeypatch):
    """Blocks leave several times in a call, and before rows of a later layer are read."""
    several, before = [], []

    def watched(self, source, first, k, limit, *, is_last):
        stops, left = [], self._left
        self._left = lambda at: left(at) and not stops.append(self._stops[at])
        compute(self, source, first, k, limit, is_last=is_last)
        several.append(len(stops))
        before.extend(stop < k for stop in stops if source is not None)
        del self._left

    compute = compiled_run.FusedInputs.compute
    net, X = leaving(2400)
    expected = gbdnn.infer(net, X, engine="lagraph")
    with monkeypatch.context() as patch:
        patch.setattr(compiled_run.FusedInputs, "compute", watched)
        options = {"memory": 1 << 16, "nthreads": nthreads, "deduplicate": deduplicate}
        Y = gbdnn.infer(net, X, engine="fused", **options)
    assert Y.isequal(expected)
    assert max(several) > 1
    assert any(before)


@THREADS
def test_a_layer_in_panels_is_not_divided_among_threads(nthreads):
    """Three inputs remain, whose layers are divided; the second of these has panels."""
    random = np.random.default_rng(0)
    first = np.zeros((700, 100))
    first[0] = 1
    shapes = [(100, 700, 0.5), (700, 300, 0.1), (300, 100, 0.5)]
    layers = [first, *[np.eye(100)] * 9]
    layers += [(random.random((n, m)) < d) * random.integers(1, 3, (n, m)) for n, m, d in shapes]
    X = random.integers(0, 2, (200, 700)).astype(float)
    X[:, 0] = np.arange(200) % 3
    Y = np.linalg.multi_dot([X, *layers])
    options = {"engine": "fused", "deduplicate": True, "nthreads": nthreads}
    found = gbdnn.infer(layers, X, dtype="FP64", **options)
    assert np.array_equal(found.to_dense(fill_value=0), Y)


@pytest.mark.parametrize("nthreads", [2, 3, 8])
def test_threads_share_the_layers_of_the_only_block(nthreads, monkeypatch):
    """All others are used: what is kept of equal inputs stays in it."""
    monkeypatch.setattr("gbdnn.engine.run.is_stop", lambda *_, **__: True)
    for name in ("HAND_OVER", "SHARE", "THREAD"):
        monkeypatch.setattr(costs, name, 1e-9)
    begin = fused_run.CompiledRun.__init__

    def few(run, *args, threads, **options):
        begin(run, *args, threads=threads, **options | {"blocks": threads + 1})

    monkeypatch.setattr(fused_run.CompiledRun, "__init__", few)
    net, X = leaving(60)
    net, X = gbdnn.Network([net[0]] * 40), X[np.arange(60) // 3]
    found = gbdnn.infer(net, X, engine="fused", deduplicate=True, nthreads=nthreads)
    assert found.isequal(gbdnn.infer(net, X, engine="lagraph"))


@pytest.mark.parametrize("engine", ["auto", "fused", "full", "sparse"])
def test_rows_that_come_back_are_checked_though_features_are_dense(engine):
    """Layer 1 has a bias of entries, and needs sparse rows; layer 2 overflows before its clip."""
    W = np.eye(4, dtype="f4")
    layers = [gbdnn.Layer(W), gbdnn.Layer(W, 1.0, bias_rule="entries")]
    layers.append(gbdnn.Layer(3e38 * W, clip=2.5))
    with pytest.raises(errors.NonFiniteError, match="layer 2"):
        gbdnn.infer(layers, 1 + np.eye(4, dtype="f4"), engine=engine)


def test_pieces_of_rows_need_no_more_blocks_than_are_unused(monkeypatch, on):
    """Two of the pieces are halves. The block in front of the list is nobody's."""
    on("Zen 4, 2 cores")
    narrow(monkeypatch)
    monkeypatch.setattr(costs, "fused_width", lambda *_: 64)
    begin, runs, records = fused_run.CompiledRun.__init__, [], []

    def few(run, *args, **options):
        begin(run, *args, **options | {"blocks": 9})
        run.set(unused=run.kept["unused"][1:], unused_count=6)
        run.kept["counts"][6] = -1
        runs.append(run)

    monkeypatch.setattr(fused_run.CompiledRun, "__init__", few)
    X, options = np.ones((384, 3), "f4"), {"engine": "fused", "callback": records.append}
    gbdnn.infer([np.eye(3)] * 3, X, nthreads=2, deduplicate=False, **options)
    assert {record.inputs for record in records if record.layer == 0} == {32, 64}
    assert runs[0].kept["counts"][6] == -1


@THREADS
def test_rows_of_which_the_sparse_kernel_takes_some(nthreads, monkeypatch):
    """Their results fill the memory, and the others are so few that blocks are cheaper."""
    for change in (narrow, divided):
        change(monkeypatch)
    monkeypatch.setattr(costs, "sparse_layer", lambda inputs, *_: 1e12 * (inputs < 1900))
    X, records = np.random.default_rng(0).integers(0, 9, (2000, 20)).astype("f4"), []
    options = {"memory": 1 << 17, "nthreads": nthreads, "callback": records.append}
    Y = gbdnn.infer([np.eye(20, dtype="f4")] * 3, sp.coo_array(X), **options)
    assert np.array_equal(Y.to_dense(fill_value=0), X)
    assert {record.kernel for record in records if record.layer == 0} == {"sparse", "fused"}
