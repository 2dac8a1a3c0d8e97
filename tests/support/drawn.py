"""Whole calls of `infer`, drawn at random, whose answers are known to the bit.

Weights, biases and features are small multiples of 1/2, and clips keep all sums small, so that each
sum is exact in FP32: an answer must equal the oracle's, whatever the engine, the number of threads,
and the form of the features.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import graphblas as gb
import numpy as np
import oracles
import scipy.sparse as sp

import gbdnn
from gbdnn import errors, io

ENGINES = ("auto", "fused", "fused", "graphblas", "sparse", "full", "full", "lagraph")
WIDTHS = (1, 2, 5, 15, 16, 17, 31, 48, 64, 100, 129, 300, 300, 300, 700, 700)
INPUTS = (0, 1, 2, 3, 7, 16, 33, 40, 200, 1500, 4000)
WORK, WEIGHTS = 1e8, 3e6  # products of a draw, and of an input, about
CALLS = 3  # with the same network and features


@dataclass
class Draw:
    """A network, features, and what `infer` must return."""

    layers: list[oracles.Dense]
    X: np.ndarray
    expected: np.ndarray
    alive: list[int]  # inputs with an activation after each layer
    dtype: str
    random: np.random.Generator

    @classmethod
    def of(cls, seed):
        random = np.random.default_rng(seed)
        sizes, inputs = _sizes(random), int(random.choice(INPUTS))
        work = sum(n * m for n, m in itertools.pairwise(sizes))
        X = Y = _features(random, min(inputs, max(3, int(WORK / work))), sizes[0])
        kind = random.choice(["any", "challenge", "reviving", "dying", "dying"])
        layers, alive = [], []
        for k in range(len(sizes) - 1):
            layers.append(_layer(random, kind, sizes, k, Y))
            Y = oracles.dense_layer(layers[-1], Y)
            alive.append(np.count_nonzero(Y.any(axis=1)))
        return cls(layers, X, Y, alive, random.choice(["FP32", "FP64"]), random)

    def network(self):
        """The network, with weights in any form."""
        layers = []
        for layer in self.layers:
            W = layer.W.astype("f4" if self.dtype == "FP32" else "f8")
            form = self.random.choice(["array", "csr", "csc", "Matrix"])
            W = {
                "array": lambda W: W, "csr": sp.csr_array, "csc": sp.csc_array,
                "Matrix": lambda W: gb.Matrix.from_dense(W, missing_value=0),
            }[form](W)  # fmt: skip
            options = {"bias_rule": layer.rule, "activation": layer.activation, "clip": layer.clip}
            layers.append(gbdnn.Layer(W, layer.b, **options, dtype=self.dtype))
        return gbdnn.Network(layers)

    def features(self):
        """The features in any form that holds them exactly, and its name."""
        X, random = self.X, self.random
        forms = {
            "FP32": lambda: X.astype("f4"), "FP64": lambda: X.copy(),
            "by columns": lambda: np.asfortranarray(X, "f4"),
            "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
            "csr": lambda: sp.csr_array(X.astype("f4")), "coo": lambda: sp.coo_array(X),
            "Matrix": lambda: gb.Matrix.from_dense(X.astype("f4"), missing_value=0),
            "full Matrix": lambda: gb.Matrix.from_dense(X),
            "with zeros": lambda: gb.Matrix.from_dense(X.astype("f4")),
        }  # fmt: skip
        if X.shape[0] == 0:
            del forms["coo"]
        if (np.floor(X) == X).all():
            forms["integers"] = lambda: X.astype(np.int16)
        if X.any() and len(np.unique(X[X != 0])) == 1:
            shape = dict(zip(("nrows", "ncols"), X.shape, strict=True))
            forms["one value"] = lambda: gb.Matrix.from_coo(
                *np.nonzero(X), float(X[X != 0][0]), "FP32", **shape
            )
        name = str(random.choice(sorted(forms)))
        return forms[name](), name

    def options(self, layers):
        """Options of a call."""
        random = self.random
        options = {"engine": str(random.choice(ENGINES)), "nthreads": int(random.choice([1, 3, 8]))}
        if options["engine"] != "lagraph":
            deduplicate = [True, False, "auto", "auto"][random.integers(4)]
            memory = [None, None, 1 << 16, 1 << 18, 1 << 20][random.integers(5)]
            options |= {"deduplicate": deduplicate} | ({"memory": memory} if memory else {})
        if random.random() < 0.3:
            options["callback"] = (records := []).append
            options["records"] = records
        return options


def _sizes(random):
    depth = int(random.choice([1, 2, 3, 4, 7, 13, 13, 24]))
    if random.random() < 0.5:
        width = int(random.choice(WIDTHS))
        return [width] * (min(depth, 1 + int(WEIGHTS / width**2)) + 1)
    return [int(random.choice(WIDTHS)) for _ in range(depth + 1)]


def _layer(random, kind, sizes, k, Y):
    """Layer k, which takes activations Y."""
    n, m, depth = *sizes[k : k + 2], len(sizes) - 1
    density = float(random.choice([0.02, 0.1, 0.5, 1.0]))
    density = max(density, 4 / n if kind == "dying" else 0)
    W = random.choice([-2, -1, 1, 1, 2], (n, m)) * (random.random((n, m)) < density)
    rule = "entries" if kind == "challenge" or random.random() < 0.2 else "all"
    low, high = {"challenge": (-3, 0), "reviving": (-2, 3)}.get(kind, (-3, 3))
    b = float(random.integers(low, high)) / 2
    if random.random() < 0.4:
        b = random.integers(low, high, m) / 2
    is_last, linear = k == depth - 1, random.random() < 0.3
    activation = "identity" if linear and (is_last or random.random() < 0.2) else "relu"
    # Without a clip, a sum may grow with each layer.
    clip = None if depth <= 3 and random.random() < 0.7 else float(random.choice([1, 2.5, 8]))
    if kind == "dying" and random.random() < 0.95:
        # The inputs with the least sums die in this layer, a share of all; some live.
        activation, clip = "relu", 64.0
        peaks = np.sort((Y @ W).max(axis=1)[Y.any(axis=1)])
        peak = peaks[int(random.choice([0, 0.02, 0.1, 0.3]) * len(peaks))] if len(peaks) else 0
        b = 0.0 if peak <= 0 or peak == peaks[-1] else -peak
    elif activation == "identity" and not is_last:
        W = np.sign(W) * (random.random((n, m)) < 4 / n)  # a clip does not limit it from below
    return oracles.Dense(W.astype(float), b, str(rule), activation, clip)


def _features(random, inputs, neurons):
    density = random.choice([0.02, 0.1, 0.5, 1.0, np.nan])
    if np.isnan(density):  # each input has its own
        density = random.random((inputs, 1))
    X = random.integers(-1, 5, (inputs, neurons)) * (random.random((inputs, neurons)) < density)
    if random.random() < 0.2:
        X = X != 0
    if random.random() < 0.5:
        X = X / 2
    if inputs > 3 and random.random() < 0.5:  # equal inputs
        X = X[random.integers(0, max(1, inputs // 4), inputs)]
    if random.random() < 0.5:
        X[:: random.integers(2, 5)] = 0
    return X.astype(float)


def dense(Y):
    return Y.to_dense(fill_value=0).astype(float)


def check(seed, folder):
    """Draw a network and calls; yield what each call was, and raise if an answer is wrong.

    A call has a way, a form of the features, an engine and threads. Then follows the number of
    layers, up to 3, in which inputs die while others live.
    """
    draw = Draw.of(seed)
    net, shapes = draw.network(), [layer.W.shape for layer in draw.layers]
    bound = 2.0**23 if draw.dtype == "FP32" else 2.0**52
    assert np.abs(draw.expected).max(initial=0) < bound, f"seed {seed}"
    deaths = sum(before > after > 0 for before, after in itertools.pairwise(draw.alive))
    for k in range(CALLS):
        (X, form), options = draw.features(), draw.options(net)
        way, told = _way(draw, options), f"seed {seed}: {form}, {options}, {draw.dtype}, {shapes}"
        if _is_computed(draw, net, X, way, options, folder / f"{seed}.{k}", told):
            yield way, form, options["engine"], options["nthreads"], min(3, deaths)


def _is_computed(draw, net, X, way, options, folder, told):
    """Make a call; return False if its options are refused."""
    records = options.pop("records", None)
    try:
        Y = _WAYS[way](net, X, options, folder)
    except errors.ArgumentError as error:
        # Forced kernels do not compute all layers, and one input needs some memory.
        if "engine" in str(error) or "is too small" in str(error):
            return False
        raise
    assert np.array_equal(Y, draw.expected), f"{way}, {told}"
    if draw.random.random() < 0.1 and len(draw.X) and "memory" not in options:
        assert "expected" in str(gbdnn.plan(net, X, **options)), told
    if records is not None:
        assert gbdnn.per_layer(records, len(net))["alive"].tolist() == draw.alive, told
    return True


def _way(draw, options):
    ways = ["infer"] * 6 + ["batches", "compile", "store", "executor"]
    if options.get("callback") or options["engine"] == "lagraph":
        ways = ["infer"]
    if draw.X.shape[0] == 0:
        ways = ["infer", "compile"]
    return str(draw.random.choice(ways))


def _infer(net, X, options, folder):
    return dense(gbdnn.infer(net, X, **options))


def _batches(net, X, options, folder):
    X = X if not hasattr(X, "tocsr") else X.tocsr()
    parts = [X[:1], X[1:]] if isinstance(X, np.ndarray | sp.csr_array) else [X]
    return np.vstack([dense(Y) for Y in gbdnn.infer_batches(net, parts, **options)])


def _compile(net, X, options, folder):
    found = gbdnn.compile(net, engine=options["engine"], nthreads=options["nthreads"])
    rows = dense(X) if isinstance(X, gb.Matrix) else np.asarray(sp.csr_array(X).todense())
    return np.asarray(found(rows.astype(net.infos[0].dtype)), float)


def _executor(net, X, options, folder):
    with ThreadPoolExecutor(2) as pool:
        workers = gbdnn.distributed.Workers(pool, batch_size=20, order="hashed")
        return dense(gbdnn.infer(net, X, executor=workers, **options))


def _store(net, X, options, folder):
    """A network on disk and features in a store, into a store."""
    gbdnn.save(net, folder / "net")
    io.write_features(sp.csr_array(dense(X)) if isinstance(X, gb.Matrix) else sp.csr_array(X),
                      folder / "X")  # fmt: skip
    stored = io.open_features(folder / "X")
    lazy = gbdnn.load(folder / "net", lazy=True)
    Y = gbdnn.infer_to_store(lazy, stored, folder / "Y", batch_size=100, **options)
    return dense(Y.matrix())


_WAYS = {
    "infer": _infer, "batches": _batches, "compile": _compile, "store": _store,
    "executor": _executor,
}  # fmt: skip


if __name__ == "__main__":  # python tests/support/drawn.py FIRST COUNT
    first, count = map(int, sys.argv[1:])
    met = Counter()
    with tempfile.TemporaryDirectory() as name:
        for each in range(first, first + count):
            met.update(check(each, Path(name)))
    sys.stdout.write(json.dumps({"computed": met.total(), "different": len(met)}))
