"""What changes a network's structure, against loops and dense arrays of NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from networks import drawn
from training_oracle import Oracle

import gbdnn
from gbdnn import training
from gbdnn.training import SET, GroupLasso, MagnitudePruning, RigL, StepContext, compact, patterns

SIZES = (30, 24, 18, 7)


def layers_of(density=0.3, seed=0, moments=2, sizes=SIZES):
    """Layers after some steps of training, as adjustments get them."""
    net = training.erdos_renyi(sizes, density, seed=seed, dtype="FP64", distribution="uniform")
    random = np.random.default_rng(seed)
    X, y = random.standard_normal((64, sizes[0])), random.standard_normal((64, sizes[-1]))
    optimizer = training.SGD(0.01) if moments == 1 else training.Adam()
    run = gbdnn.train(net, X, y, epochs=1, batch_size=16, optimizer=optimizer, nthreads=1)
    return [layer.trainable(moments) for layer in run.layers]


def moment(step=10, steps=100, gradients=None, seed=5):
    random = np.random.default_rng(seed)
    return StepContext(step, steps, np.array([0.1, 0.1]), random, lambda k: gradients[k].copy())


def dense(layer):
    """The weights as an array, and where edges are."""
    W, mask = np.zeros((layer.nrows, layer.ncols)), np.zeros((layer.nrows, layer.ncols), bool)
    column, row = np.divmod(layer.edges, layer.nrows)
    W[row, column], mask[row, column] = layer.weights, True
    return W, mask


def known(layer):
    """Weight and moments of each edge by its number."""
    columns = zip(layer.weights, *layer.moments, strict=True)
    return dict(zip(layer.edges.tolist(), columns, strict=True))


def thresholded(W, mask, t, *, columns):
    """Group soft threshold, columns if there are any to shrink, then rows."""
    W = W.copy()
    for axis in ("columns", "rows") if columns else ("rows",):
        groups = zip(W.T, mask.T, strict=True) if axis == "columns" else zip(W, mask, strict=True)
        for w, edges in groups:
            norm, limit = math.sqrt(sum(x * x for x in w)), t * math.sqrt(edges.sum())
            w *= max(0.0, 1 - limit / norm) if norm > 0 else 0.0
    return W


@pytest.mark.parametrize("density", [0.4, 1.0])
@pytest.mark.parametrize("dtype", ["FP32", "FP64"])
def test_training_with_a_group_lasso(density, dtype):
    """Against NumPy, step by step: the next step has to see the weights that were shrunk."""
    net = training.erdos_renyi((20, 16, 5), density, dtype=dtype)
    random = np.random.default_rng(1)
    X, y = random.random((60, 20)), random.standard_normal((60, 5))
    expected = Oracle(
        [layer.W.to_dense(fill_value=0) for layer in net], [np.zeros(16), np.zeros(5)],
        [None, None], [True, False],
    )  # fmt: skip
    strength = 0.8 if density < 1 else 0.95  # some groups disappear, and not all
    rates = 0.025 * (1 + np.cos(np.pi * np.arange(6) / 6))
    for step, expected.rate in enumerate(rates):
        expected.step(X, y)
        if step % 2:
            t = strength * rates[step - 1 : step + 1].sum()
            for k, mask in enumerate(expected.masks):
                expected.W[k] = thresholded(expected.W[k], mask, t, columns=k == 0)
    run = gbdnn.train(
        net, X, y, epochs=6, batch_size=60, optimizer="sgd",
        adjustments=GroupLasso(strength, every=2),
    )  # fmt: skip
    for layer, W, before in zip(run.network, expected.W, net, strict=True):
        atol = 1e-5 if dtype == "FP32" else 1e-12
        np.testing.assert_allclose(layer.W.to_dense(fill_value=0), W, atol=atol)
        assert 0 < layer.edges == np.count_nonzero(W) <= before.edges
    assert run.network.edges < net.edges


@pytest.mark.parametrize("density", [0.5, 1.0])
def test_negligible_groups_are_gone_after_the_last_step(density):
    for step in 99, 100:
        layers = layers_of(density)
        small, other = layers[0].places[5], int(layers[0].rows[0])
        layers[0].weights[layers[0].columns == small] = 9e-4
        layers[0].weights[layers[0].rows == other] = 9e-4
        before, _ = dense(layers[0])
        GroupLasso(0, negligible=1e-3).adjust(layers, moment(step, 100))
        if step == 100:
            before[other] = before[:, small] = 0
        np.testing.assert_array_equal(dense(layers[0])[0], before)


def lives_on(before, after, dropped, grown):
    """What belonged to an edge still does; new edges begin at 0; biases are the same."""
    old, new = known(before), known(after)
    assert set(old) - set(new) == set(dropped)
    assert set(new) - set(old) == set(grown)
    assert all(new[edge] == old[edge] for edge in set(old) & set(new))
    assert not any(any(new[edge]) for edge in grown)
    biases = ((x.bias, *x.bias_moments) for x in (before, after))
    for a, b in zip(*biases, strict=True):
        np.testing.assert_array_equal(before.by_neuron(a), after.by_neuron(b))
    assert (np.diff(after.numbered(after.edges)) > 0).all()


@settings(max_examples=30)
@given(
    st.floats(0.05, 0.95), st.floats(0, 1), st.floats(0, 1), st.integers(1, 2), st.integers(0, 99)
)
def test_rigl_moves_what_a_search_finds(density, fraction, progress, moments, seed):
    layers = layers_of(density, seed, moments, sizes=(9, 8, 6))
    random = np.random.default_rng(seed)
    gradients = [random.standard_normal((layer.ncols, layer.nrows)) for layer in layers]
    rule = RigL(fraction, every=1, until=0.8)
    step = int(100 * progress)
    after = rule.adjust(list(layers), moment(step, 100, gradients=gradients))
    part = fraction / 2 * (1 + math.cos(math.pi * step / 80)) if step < 80 else 0
    for k, (a, b) in enumerate(zip(layers, after, strict=True)):
        weight = {edge: abs(values[0]) for edge, values in known(a).items()}
        free = set(range(a.nrows * a.ncols)) - set(weight)
        count = min(int(part * a.nedges), len(free))
        slope = {e: abs(gradients[k][e // a.nrows, e % a.nrows]) for e in free}
        dropped = sorted(weight, key=weight.get)[:count]
        lives_on(a, b, dropped, sorted(free, key=slope.get)[len(free) - count :])
        assert (a is b) == (count == 0)


@pytest.mark.parametrize("kind", ["random", "few", "none", "ties"])
@pytest.mark.parametrize("fraction", [0.02, 0.3, 1.0])
def test_rigl_finds_the_largest_of_many(kind, fraction):
    """Of so many that it does not sort all; and where nearly all gradients are 0."""
    (layer,) = layers_of(0.2, moments=1, sizes=(150, 130))
    random = np.random.default_rng(3)
    G = random.standard_normal((130, 150))
    if kind != "random":
        G *= random.random(G.shape) < {"few": 0.01, "none": 0, "ties": 1}[kind]
    if kind == "ties":
        G = G.round(1)
    (after,) = RigL(fraction).adjust([layer], moment(0, gradients=[G]))
    grown = np.setdiff1d(after.edges, layer.edges)
    free = np.setdiff1d(np.arange(G.size), layer.edges)
    count = int(fraction * layer.nedges)
    assert len(grown) == count
    slopes = np.abs(G).ravel()
    largest = np.sort(slopes[free])[len(free) - count :]
    np.testing.assert_array_equal(np.sort(slopes[grown]), largest)


@settings(max_examples=30)
@given(st.floats(0.02, 1), st.floats(0, 1), st.integers(0, 99))
def test_set_moves_the_smallest_to_free_places(density, fraction, seed):
    layers = layers_of(density, seed, sizes=(9, 8, 6))
    after = SET(fraction).adjust(list(layers), moment(seed=seed))
    for a, b in zip(layers, after, strict=True):
        weight = {edge: abs(values[0]) for edge, values in known(a).items()}
        count = min(int(fraction * a.nedges), a.nrows * a.ncols - a.nedges)
        grown = set(known(b)) - set(weight)
        assert len(grown) == count
        lives_on(a, b, sorted(weight, key=weight.get)[:count], grown)


def test_set_grows_everywhere_alike():
    """Each free place about as often as any other."""
    layers = layers_of(0.3, moments=1, sizes=(10, 10))
    free = ~dense(layers[0])[1].T.ravel()
    times = np.zeros(100)
    for seed in range(500):
        (after,) = SET(0.34).adjust(list(layers), moment(seed=seed))
        times[after.edges] += 1
    assert layers[0].nedges == 30
    assert (np.abs(times[free] - 500 * 10 / 70) < 40).all()


def test_nothing_moves_at_the_end():
    layers = layers_of()
    for rule in (SET(), RigL(until=1.0)):
        after = rule.adjust(list(layers), moment(100, 100))
        assert all(a is b for a, b in zip(layers, after, strict=True))


@pytest.mark.parametrize("scope", ["network", "layer"])
@pytest.mark.parametrize("step", [0, 19, 20, 35, 59, 60, 100])
def test_magnitude_keeps_the_largest(scope, step):
    layers = layers_of(0.6)
    rule = MagnitudePruning(0.1, begin=0.2, end=0.6, scope=scope)
    after = rule.adjust(list(layers), moment(step, 100))
    density = 0.1 + 0.9 * (1 - min(max((step - 20) / 40, 0), 1)) ** 3
    together = [layers] if scope == "network" else [[layer] for layer in layers]
    wanted = set()
    for group in together:
        weight = {
            (layers.index(layer), edge): abs(values[0])
            for layer in group
            for edge, values in known(layer).items()
        }
        count = round(density * sum(layer.nrows * layer.ncols for layer in group))
        wanted |= set(sorted(weight, key=weight.get, reverse=True)[:count])
    for k, (a, b) in enumerate(zip(layers, after, strict=True)):
        kept = {edge for layer, edge in wanted if layer == k}
        lives_on(a, b, set(known(a)) - kept, set())
        assert (a is b) == (len(kept) == a.nedges)


def test_magnitude_leaves_an_edge_to_each_layer():
    layers = layers_of(0.5)
    layers[1].weights *= 1e-6
    best = layers[1].edges[np.argmax(np.abs(layers[1].weights))]
    after = MagnitudePruning(0.001).adjust(list(layers), moment(99, 100))
    assert after[1].edges.tolist() == [best]
    assert all(layer.nedges for layer in after)


def test_magnitude_leaves_sparser_networks():
    layers = layers_of(0.2)
    assert MagnitudePruning(0.2).adjust(layers, moment(100, 100)) is layers


# -- in training ----------------------------------------------------------------------------------


def test_when_an_adjustment_is_asked():
    """The last time after the last step; with the learning rates of the steps between."""
    moments = []

    class Recording:
        every = 3

        def adjust(self, layers, moment):
            moments.append(moment)
            return layers

    X = np.random.default_rng(0).random((200, SIZES[0])).astype(np.float32)
    gbdnn.train(
        training.erdos_renyi(SIZES, 0.3), X, np.arange(200) % SIZES[-1], epochs=2, batch_size=50,
        nthreads=1, adjustments=Recording(), optimizer=training.SGD(0.2),
    )  # fmt: skip
    assert [moment.step for moment in moments] == [3, 6, 8]
    assert [moment.progress for moment in moments] == [3 / 8, 6 / 8, 1]
    rates = 0.1 * (1 + np.cos(np.pi * np.arange(8) / 8))
    for moment, expected in zip(moments, np.split(rates, [3, 6]), strict=True):
        np.testing.assert_allclose(moment.learning_rates, expected)


# -- compaction -----------------------------------------------------------------------------------


def compacted(layers, X, *, inputs=False):
    """Compact, and check answers, shapes and that nothing is left to remove."""
    net = gbdnn.Network(layers)
    before = [layer.weights.dup() for layer in net]
    small, kept = compact(net, inputs=inputs)
    assert all(a.weights.isequal(W) for a, W in zip(net, before, strict=True))
    assert (small.dtype, small.shape) == (net.dtype, (len(kept), net.shape[1]))
    expected = gbdnn.infer(net, X).to_dense(fill_value=0)
    found = gbdnn.infer(small, X[:, kept]).to_dense(fill_value=0)
    tolerance = 1e-4 if net.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    if inputs:
        used = np.flatnonzero(small[0].W.to_dense(fill_value=0).any(axis=1))
        assert len(used) == len(kept) or len(kept) == 1
    else:
        np.testing.assert_array_equal(kept, np.arange(net.shape[0]))
    assert compact(small, inputs=inputs).network.isequal(small)
    return small


@settings(max_examples=60)
@given(drawn(fewest=2, rules=("all", "entries"), density=0.2), st.booleans(), st.integers(0, 999))
def test_compaction_keeps_the_answers(net, inputs, seed):
    random = np.random.default_rng(seed)
    X = random.standard_normal((20, net.shape[0])) * (random.random((20, net.shape[0])) < 0.7)
    compacted(net, X, inputs=inputs)


def test_constants_go_through_several_layers():
    """A neuron that only a constant one reaches is constant, too."""
    layers = [
        gbdnn.Layer(np.array([[1.0, 0.0], [1.0, 0.0]]), [0.0, 9.0], clip=4.0),
        gbdnn.Layer(np.array([[1.0, 0.0], [0.0, 2.0]]), [0.5, -5.0]),
        gbdnn.Layer(np.array([[1.0, 1.0], [0.0, 3.0]]), [0.0, 1.0], activation="identity"),
    ]
    small = compacted(layers, np.random.default_rng(0).random((5, 2)))
    assert [info.shape for info in small.infos] == [(2, 1), (1, 1), (1, 2)]
    np.testing.assert_array_equal(small[2].bias, [0.0, 1 + 3 * (2 * 4.0 - 5)])
    assert np.ndim(small[1].bias) == 1
    np.testing.assert_array_equal(small[1].bias, [0.5])


@pytest.mark.parametrize("rule", ["all", "entries"])
def test_a_layer_that_loses_all_its_neurons_keeps_one(rule):
    weights = np.ones((6, 5)), np.zeros((5, 4)), np.ones((4, 3))
    layers = [gbdnn.Layer(W, 0.5, bias_rule=rule) for W in weights]
    small = compacted(layers, np.ones((8, 6)), inputs=True)
    assert [info.shape for info in small.infos] == [(1, 1), (1, 1), (1, 3)]
    assert small.edges == 0


def test_a_constant_neuron_stays_before_a_layer_of_entries():
    """Without it no entry would be there for the bias to be added to."""
    layers = [
        gbdnn.Layer(np.zeros((2, 2)), np.array([1.0, -1.0])),
        gbdnn.Layer(np.ones((2, 3)), np.array([0.5, -3.0, 1.0]), bias_rule="entries"),
    ]
    assert [info.shape for info in compacted(layers, np.zeros((4, 2))).infos] == [(2, 1), (1, 3)]


# -- patterns -----------------------------------------------------------------------------------


def test_radix_patterns_with_ends():
    net = training.with_ends(gbdnn.gallery.radixnet(1024, 2), 784, 10, degree=20, seed=3)
    assert [info.shape for info in net.infos] == [(784, 1024)] + [(1024, 1024)] * 2 + [(1024, 10)]
    W = [layer.W for layer in net]
    assert (np.diff(W[0].ss.export("csc")["indptr"].view(np.int64)) == 20).all()
    assert W[3].nvals == 10240
    for layer, pattern in zip(net[1:3], gbdnn.gallery.radixnet(1024, 2), strict=True):
        assert layer.W.dup("BOOL").isequal(pattern.W.dup("BOOL"))
    assert [info.bias_rule for info in net.infos] == ["all"] * 4
    assert net.infos[3].activation == "identity"
    again = training.with_ends(gbdnn.gallery.radixnet(1024, 2), 784, 10, degree=20, seed=3)
    assert net.isequal(again)
    assert training.with_ends(net[1:2], 5, 3).infos[0].edges == 5 * 1024


def test_many_random_edges_are_drawn_range_by_range(monkeypatch):
    """Because `choice` takes 8 bytes for each number that is possible."""
    monkeypatch.setattr(patterns, "_RANGE", 1000)
    random = np.random.default_rng(0)
    for possible, count in [(25_300, 2_000), (25_300, 25_300), (25_300, 25_299), (999, 500)]:
        edges = patterns.random_edges(possible, count, random)
        assert len(edges) == count
        assert (np.diff(edges) > 0).all()
        assert 0 <= edges[0] <= edges[-1] < possible
    counts = np.histogram(patterns.random_edges(100_000, 20_000, random), 100)[0]
    assert 120 < counts.min() < counts.max() < 280  # 200 expected, 12.6 is one deviation
    assert len(patterns.random_edges(10**12, 3, random)) == 3  # few of many: one draw
