"""Equal inputs once: the same bits with and without, whatever collides."""

import numpy as np
import pytest
from conftest import narrow, network, reordered
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from oracles import case
from test_properties import ANY, problems

import gbdnn
from gbdnn.arrays.matrices import as_rows
from gbdnn.engine import duplicates as compression
from gbdnn.engine import stops
from gbdnn.engine.duplicates import equal_columns, equal_rows, fingerprints
from gbdnn.engine.survivors import SurvivorBlock
from gbdnn.kernels.blocks import Block

few = st.sampled_from([0.0, -0.0, 1.0, 2.0])


def converging(inputs=200, layers=12, neurons=40, seed=0):
    """A network under which inputs become equal one after the other, and inputs with repeats."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(layers):
        W = (random.random((neurons, neurons)) < 0.3) * random.integers(1, 4, (neurons, neurons))
        made.append(gbdnn.Layer(W / 2, -0.5, bias_rule="entries", clip=4.0))
    X = (random.random((inputs, neurons)) < 0.15) * random.integers(1, 3, (inputs, neurons))
    X[::7] = 0
    return gbdnn.Network(made), X[random.integers(0, inputs, inputs)].astype(np.float32)


@pytest.mark.pairwise
@pytest.mark.parametrize("engine", ["full", "fused", "sparse", "auto"])
@pytest.mark.parametrize("nthreads", [1, 3])
@pytest.mark.parametrize("patches", [[], [narrow], [narrow, reordered]])
@pytest.mark.parametrize("compress", [True, "auto"])
def test_bitwise_the_same_as_without(engine, nthreads, patches, compress, monkeypatch):
    for patch in patches:
        patch(monkeypatch)
    net, X = converging()
    plain = gbdnn.infer(net, X, engine=engine, nthreads=nthreads, compress=False)
    assert 0 < len(gbdnn.categories(plain)) < len(X)
    Y = gbdnn.infer(net, X, engine=engine, nthreads=nthreads, compress=compress)
    assert Y.isequal(plain)


@pytest.mark.parametrize("engine", ["full", "fused", "sparse"])
def test_statistics_tell_living_distinct_and_computed(engine, monkeypatch):
    narrow(monkeypatch)
    net, X = converging()
    live = {}
    for compress in (False, True):
        stats = []
        gbdnn.infer(net, X, engine=engine, compress=compress, callback=stats.append)
        live[compress] = [sum(s.live for s in stats if s.layer == k) for k in range(len(net))]
        distinct = [sum(s.distinct for s in stats if s.layer == k) for k in range(len(net))]
        computed = [sum(s.inputs for s in stats if s.layer == k) for k in range(len(net))]
        if compress:
            assert distinct[-1] < 0.2 * live[True][-1]
            assert computed[-1] < 0.2 * live[True][-1]
        else:
            assert distinct == live[False]
    assert live[True] == live[False]


@pytest.mark.parametrize("engine", ["full", "fused", "sparse"])
def test_collisions_of_fingerprints_cost_nothing_but_time(engine, monkeypatch):
    narrow(monkeypatch)
    same = lambda array: np.zeros(array.shape[1], np.uint64)  # noqa: E731
    monkeypatch.setattr(stops, "fingerprints", same)
    monkeypatch.setattr(compression, "_ODD", np.uint64(0))
    net, X = converging()
    plain = gbdnn.infer(net, X, engine=engine, compress=False)
    assert gbdnn.infer(net, X, engine=engine, compress=True).isequal(plain)


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_equal_inputs_in_different_blocks_become_one(engine, monkeypatch):
    narrow(monkeypatch)
    net, X = converging()
    X[:] = X[np.flatnonzero(X.any(axis=1))[0]]
    stats = []
    Y = gbdnn.infer(net, X, engine=engine, compress=True, nthreads=1, callback=stats.append)
    assert sum(s.inputs for s in stats if s.layer == 11) == 1
    assert sum(s.live for s in stats if s.layer == 11) == 200
    assert len(gbdnn.categories(Y)) == 200


def test_a_pool_merges_equal_bits_not_equal_fingerprints():
    pool = SurvivorBlock(Block(3, 16, np.dtype("f4")))
    duplicates = compression.Duplicates(6, always=True)
    first = np.array([[1, 2], [0, 0], [3, 3]], np.float32)
    marks = np.array([7, 7], np.uint64)
    where = pool.reserve(np.array([0, 1]))
    assert (where.start, where.stop) == (0, 2)
    pool.fill(where, first)
    # Until it is known that they are there, nothing is merged into them.
    assert pool.merge(first, np.array([2, 3]), marks, duplicates).tolist() == [0, 1]
    pool.filled(where, marks)
    then = np.array([[1, 5, 2], [0, 0, 0], [3, 3, 4]], np.float32)
    others = pool.merge(then, np.array([2, 3, 4]), np.array([7, 7, 7], np.uint64), duplicates)
    assert others.tolist() == [1, 2]
    assert duplicates.followed().tolist() == [0, 1, 0, 3, 4, 5]


def test_a_pool_is_ready_when_all_that_it_holds_is_there():
    pool = SurvivorBlock(Block(3, 16, np.dtype("f4")))
    one, two = pool.reserve(np.arange(10)), pool.reserve(np.arange(10, 20))
    assert (two.start, two.stop) == (10, 16)
    assert pool.is_full
    columns = np.arange(60, dtype="f4").reshape(3, 20)
    pool.fill(two, columns[:, 10:])
    pool.filled(two, None)
    assert not pool.is_ready
    pool.fill(one, columns[:, :10])
    pool.filled(one, None)
    assert pool.is_ready
    np.testing.assert_array_equal(pool.block.array, columns[:, :16])
    assert pool.block.inputs.tolist() == list(range(16))


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_the_order_of_the_rows_does_not_matter(engine):
    net, X = converging()
    order = np.random.default_rng(3).permutation(len(X))
    Y = gbdnn.infer(net, X, engine=engine, compress=True)
    assert gbdnn.infer(net, X[order], engine=engine, compress=True).isequal(Y[order, :].new())


@ANY
@given(problems())
def test_any_network(problem):
    layers, X = problem
    net, X = network(layers), np.repeat(X, 3, axis=0)
    for engine in ("full", "fused", "sparse"):
        plain = gbdnn.infer(net, X, engine=engine, compress=False)
        assert gbdnn.infer(net, X, engine=engine, compress=True).isequal(plain)


def test_fingerprints_of_a_few_ones_differ():
    """Columns with two ones each: no two pairs of neurons have one fingerprint."""
    pairs = np.array([(i, j) for i in range(64) for j in range(i)])
    A = np.zeros((64, len(pairs)), np.float32)
    A[pairs.T, np.arange(len(pairs))] = 1
    assert len(np.unique(fingerprints(A))) == len(pairs)


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 9)), elements=few))
def test_equal_columns_against_a_loop(A):
    bits = A.view(np.uint32)
    equal = equal_columns(A, fingerprints(A), np.arange(A.shape[1]))
    seen, stay, merged = {}, [], []
    for j in range(A.shape[1]):
        key = bits[:, j].tobytes()
        if key in seen:
            merged.append((j, seen[key]))
        else:
            seen[key] = j
            stay.append(j)
    assert equal.stay.tolist() == stay
    assert list(zip(equal.merged.tolist(), equal.into.tolist(), strict=True)) == merged


@given(arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=few))
def test_equal_rows_against_a_loop(A):
    equal = equal_rows(as_rows(A, what="A"))
    seen = {}
    first = [seen.setdefault((row + 0.0).tobytes(), i) for i, row in enumerate(A)]
    assert equal.stay.tolist() == sorted(set(first))
    assert [first[i] for i in equal.merged] == equal.into.tolist()


def test_distinct_inputs_are_looked_at_less_and_less():
    duplicates = compression.Duplicates(10, always=False)
    assert not duplicates.should_check(0)
    looks = [k for k in range(40) if duplicates.should_check(k)]
    assert looks == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 33]
    assert not duplicates.record(5, 10, 10)
    assert [duplicates.should_check(5) for _ in range(9)] == [False] * 8 + [True]
    assert duplicates.record(6, 5, 10)
    assert duplicates.should_check(6)
    always = compression.Duplicates(10, always=True)
    always.record(5, 10, 10)
    assert always.should_check(5)


def test_chains_of_merges_end_at_the_representative():
    duplicates = compression.Duplicates(6, always=True)
    assert duplicates.followed() is None
    duplicates.merge(np.array([1, 2]), np.array([0, 0]))
    duplicates.merge(np.array([0]), np.array([5]))
    assert duplicates.followed().tolist() == [5, 5, 5, 3, 4, 5]
    assert duplicates.weights[[5, 3]].sum() == 5


def test_a_flag_of_numpys_is_a_flag():
    """An array of a few layers takes its shorter way without, and under "auto"."""
    net, X = converging(layers=3)
    for flag, deduplicates in ((True, True), (np.bool_(True), True), (np.bool_(False), False)):
        made = []

        class Observed(compression.Duplicates):
            def __init__(self, *arguments, made=made, **options):
                made.append(options["always"])
                super().__init__(*arguments, **options)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gbdnn.engine.run.Duplicates", Observed)
            gbdnn.infer(net, X, compress=flag)
        assert made == [True] * deduplicates


def test_compress_without_meaning():
    with pytest.raises(ValueError, match="compress is True, False or 'auto', not 'yes'"):
        gbdnn.infer([np.eye(2)], np.eye(2), compress="yes")


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_official_bits(engine, official):
    from gbdnn.challenge import read_challenge_network
    from gbdnn.io import read_tsv

    net = read_challenge_network(official, 1024)
    X = read_tsv(official / "MNIST" / "sparse-images-1024.tsv", nrows=1200, ncols=1024)
    plain = gbdnn.infer(net, X, engine=engine, compress=False)
    for compress in (True, "auto"):
        assert gbdnn.infer(net, X, engine=engine, compress=compress).isequal(plain)


@pytest.mark.parametrize("engine", ["full", "fused"])
def test_without_equal_inputs_nothing_changes(engine):
    rough = case(31, exact=False, sizes=(60, 70, 50), inputs=70, density=0.1)
    net = network(rough.layers)
    plain = gbdnn.infer(net, rough.X, engine=engine, compress=False)
    assert gbdnn.infer(net, rough.X, engine=engine, compress=True).isequal(plain)
