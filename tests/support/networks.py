"""Networks with a property that tests need."""

import itertools
from dataclasses import replace

import graphblas as gb
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from oracles import Dense, dyadic

import gbdnn

# What the fixture `infer` sets up holds for all examples alike. It has 15 values: each of them gets
# fewer examples.
ANY = settings(max_examples=settings().max_examples * 2 // 5,
    suppress_health_check=[HealthCheck.function_scoped_fixture])  # fmt: skip


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


def dying(inputs, *, at, layers=6, neurons=40, survivors=()):
    """Inputs that all die in layer `at`, except for the survivors; FP32 sums are exact."""
    random = np.random.default_rng(at)
    made = []
    for _ in range(layers):
        W = dyadic(random, (neurons, neurons), 0.2, low=1)
        np.fill_diagonal(W, 1.0)
        made.append(Dense(W, -0.125, "entries", "relu", 4.0))
    X = dyadic(random, (inputs, neurons), 0.3, low=16, high=32)
    # Only neuron 0 survives layer `at`, and it is on in the survivors alone.
    X[:, 0] = 0
    X[list(survivors), 0] = 2.0
    for k in range(at + 1):
        made[k].W[0, 1:] = 0
        made[k].W[1:, 0] = 0
        made[k].b = 0.0
    made[at].W[1:, :] = 0
    return made, X


def pruned(sizes, densities, *, bias=0.05):
    """Layers of given densities with some positive biases, the last of them linear."""
    random = np.random.default_rng(0)
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        density = densities[k % len(densities)]
        W = random.normal(0, 1.4 / np.sqrt(max(1, density * n)), (n, m))
        W[random.random((n, m)) >= density] = 0
        b = random.normal(bias, 0.1, m)
        W, b = (np.asarray(a, "f4").astype("f8") for a in (W, b))
        layers.append(Dense(W, b, activation="identity" if k == len(sizes) - 2 else "relu"))
    return layers


def as_iso(layer):
    """The same layer, with one stored value for all edges."""
    rows, columns = np.nonzero(layer.W)
    W = gb.Matrix.from_coo(rows, columns, layer.W.max(), nrows=len(layer.W), ncols=len(layer.W.T))
    return replace(layer, W=W)


@st.composite
def drawn(draw, *, least=1, fewest=1, rules=("all",), scales=(1.0,), bias=-0.25, density=0.5):
    """Draw a network of any layers: `least` neurons in each, `fewest` sizes, a number as a bias."""
    dtype = draw(st.sampled_from(["FP32", "FP64"]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(least, 9), min_size=fewest, max_size=5))
    layers = []
    for n, m in itertools.pairwise(sizes):
        values = draw(st.sampled_from([0.5, random.standard_normal((n, m))]))
        layers.append(
            gbdnn.Layer(
                values * draw(st.sampled_from(scales)) * (random.random((n, m)) < density),
                draw(st.sampled_from([0.0, bias, random.standard_normal(m)])),
                bias_rule=draw(st.sampled_from(rules)),
                activation=draw(st.sampled_from(["relu", "identity"])),
                clip=draw(st.sampled_from([None, 0.1, 32, 1e30])),
                dtype=dtype,
            )
        )
    return gbdnn.Network(layers)


@st.composite
def problems(draw, rules=("all", "entries"), max_layers=4):
    """A network of any shape, and features, whose sums are exact in FP32.

    Values are multiples of 1/8 per layer; inner layers have a ReLU and a clip, which bound them.
    """
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 20), min_size=2, max_size=max_layers + 1))
    density = draw(st.sampled_from([0.1, 0.3, 0.8]))
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        last = k == len(sizes) - 2
        W = random.integers(-8, 16, (n, m)) / 8 * (random.random((n, m)) < density)
        b = draw(
            st.one_of(st.sampled_from([0.0, -0.25, 0.25]), st.just(random.integers(-3, 4, m) / 8)),
        )  # fmt: skip
        layers.append(
            Dense(
                W, b, draw(st.sampled_from(rules)),
                draw(st.sampled_from(["relu", "identity"] if last else ["relu"])),
                draw(st.sampled_from([None, 1.5, 8.0] if last else [1.5, 2.0, 8.0])),
            ),
        )  # fmt: skip
    inputs = draw(st.integers(1, 40))
    X = (
        random.integers(0, 8, (inputs, sizes[0]))
        / 4
        * (random.random((inputs, sizes[0])) < density)
    )
    return layers, X
