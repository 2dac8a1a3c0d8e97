"""RadiX-Net by exact counting."""

import itertools
from functools import reduce

import numpy as np
import pytest
from calls import raises

import gbdnn


def pattern(W):
    return W.to_dense(fill_value=0) != 0


BIGGEST = pytest.param(65536, 12, marks=pytest.mark.slow)


@pytest.mark.parametrize(("neurons", "m"), [(1024, 6), (4096, 8), (16384, 10), BIGGEST])
def test_presets_have_32_edges_in_and_out_of_every_neuron(neurons, m):
    net = gbdnn.gallery.radixnet(neurons, m + 2)
    assert len(net) == m + 2
    for layer in net[0], net[m - 1], net[m + 1]:
        W = layer.weights
        assert W.shape == (neurons, neurons)
        rows, columns, values = W.to_coo()
        assert set(np.bincount(rows.astype(np.int64))) == {32}
        assert set(np.bincount(columns.astype(np.int64))) == {32}
        assert set(values.tolist()) == {1 / 16}
        assert (layer.bias_rule, layer.clip, layer.activation) == ("entries", 32, "relu")
        assert layer.dtype == np.float32


def test_base_network_has_equally_many_paths():
    net = gbdnn.gallery.radixnet(1024, 6)
    paths = reduce(np.matmul, [pattern(layer.weights).astype(np.float32) for layer in net])
    # 32^6 walks from each neuron, spread evenly over 1024; FP32 counts them exactly
    assert set(paths.ravel()) == {32**6 / 1024}


def rows_of_groups(net, starts):
    """The rows of six layers side by side, for each first layer."""
    for k in starts:
        group = np.hstack([pattern(layer.weights) for layer in net[k : k + 6]])
        yield [row.tobytes() for row in np.packbits(group, axis=1)]


def test_later_groups_are_the_base_network_with_permuted_rows():
    rows = list(rows_of_groups(gbdnn.gallery.radixnet(1024, 18, seed=3), (0, 6, 12)))
    assert sorted(rows[0]) == sorted(rows[1]) == sorted(rows[2])
    assert len({*map(tuple, rows)}) == 3


def test_deterministic_from_the_seed():
    net = gbdnn.gallery.radixnet(1024, 14, seed=5)
    assert net.isequal(gbdnn.gallery.radixnet(1024, 14, seed=5))
    assert net[:13].isequal(gbdnn.gallery.radixnet(1024, 13, seed=5))
    assert net[:6].isequal(gbdnn.gallery.radixnet(1024, 6, seed=6))
    assert not net.isequal(gbdnn.gallery.radixnet(1024, 14, seed=6))
    # frozen for all time: the neurons that neuron 0 of the first permuted layer reads
    assert net[6].weights.to_coo()[0][:4].tolist() == [23, 68, 131, 135]


@pytest.mark.parametrize(
    ("systems", "widths"),
    [
        ([(2, 3), (3, 2), (6,)], None),
        ([(3, 4), (6,)], None),  # the last product divides the others
        ([(5,), (5,)], [1, 3, 2]),
        ([(2, 3), (6,)], [2, 1, 4, 3]),
    ],
)
def test_general_networks_have_equally_many_paths(systems, widths):
    layers = gbdnn.gallery.radix_layers(systems, widths)
    radices = [r for system in systems for r in system]
    N = int(np.prod(systems[0]))
    d = widths or [1] * (len(radices) + 1)
    assert [W.shape for W in layers] == [(N * a, N * b) for a, b in itertools.pairwise(d)]
    for W, radix, above, below in zip(layers, radices, d, d[1:], strict=False):
        assert set(pattern(W).sum(axis=0)) == {radix * above}
        assert set(pattern(W).sum(axis=1)) == {radix * below}
    paths = reduce(np.matmul, [pattern(W).astype(np.int64) for W in layers])
    walks = np.prod([r * w for r, w in zip(radices, d[1:], strict=False)])
    assert set(paths.ravel()) == {walks / (N * d[-1])}


def test_one_system_against_its_definition():
    # place values 1 and 2 of the system (2, 3): i joined to i and i - 1, then to i, i - 2, i - 4
    first, second = (pattern(W) for W in gbdnn.gallery.radix_layers([(2, 3)]))
    for i in range(6):
        assert set(np.flatnonzero(first[i])) == {i, (i - 1) % 6}
        assert set(np.flatnonzero(second[i])) == {i, (i - 2) % 6, (i - 4) % 6}


def test_official_layers_are_the_generated_ones_with_permuted_rows(official):
    net = gbdnn.load(official, neurons=1024, layers=120)
    assert net[:6].isequal(gbdnn.gallery.radixnet(1024, 6))
    first, second, last = map(sorted, rows_of_groups(net, (0, 6, 114)))
    assert first == second == last


def test_what_does_not_fit_into_memory_is_refused_before_it_is_allocated():
    """No machine has the exabytes that these need."""
    pixels, error = gbdnn.gallery.digits()[:1], gbdnn.errors.TooLargeError
    raises(error, r"layers need .*; pass lazy=True$", gbdnn.gallery.radixnet, 1024, 10**12)
    for call in (
        lambda: gbdnn.gallery.radixnet(1024, 10**17, lazy=True),
        lambda: gbdnn.gallery.radix_layers([(2,)], widths=[2**30, 2**30]),
        lambda: gbdnn.gallery.features_from_images(np.tile(pixels, (2**20, 1, 1)), 2**30),
        lambda: gbdnn.training.erdos_renyi([2**29] * 3, 1),
        lambda: gbdnn.training.with_ends(gbdnn.gallery.radixnet(1024, 1), 2**30, 2**58 // 1024),
    ):
        raises(error, "GiB, but this machine has", call)
