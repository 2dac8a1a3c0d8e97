"""Networks with a property that tests need."""

import itertools

import numpy as np
from hypothesis import strategies as st
from oracles import Dense

import gbdnn


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


@st.composite
def drawn(draw, *, least=1, fewest=1, rules=("all",), scales=(1.0,), bias=-0.25, density=0.5):
    """Draw a network of any layers: `least` neurons in each, `fewest` sizes, a number as a bias."""
    dtype = draw(st.sampled_from(["FP32", "FP64"]))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(least, 9), min_size=fewest, max_size=5))
    layers = []
    for n, m in itertools.pairwise(sizes):
        values = draw(st.sampled_from([0.5, random.standard_normal((n, m))]))
        values = values * draw(st.sampled_from(scales)) * (random.random((n, m)) < density)
        b = draw(st.sampled_from([0.0, bias, random.standard_normal(m)]))
        options = {"bias_rule": draw(st.sampled_from(rules)), "dtype": dtype}
        options["activation"] = draw(st.sampled_from(["relu", "identity"]))
        options["clip"] = draw(st.sampled_from([None, 0.1, 32, 1e30]))
        layers.append(gbdnn.Layer(values, b, **options))
    return gbdnn.Network(layers)
