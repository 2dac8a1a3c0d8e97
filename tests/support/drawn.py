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

ENGINES = ("auto", "fused", "graphblas", "sparse", "full", "lagraph")
WIDTHS = (1, 2, 5, 15, 16, 17, 31, 48, 64, 100, 129, 300, 700)
INPUTS = (0, 1, 2, 3, 7, 16, 33, 40, 200, 1500, 4000)
WORK = 3e7  # products of a draw


@dataclass
class Draw:
    """A network, features and options, and what `infer` must return."""

    layers: list[oracles.Dense]
    X: np.ndarray
    dtype: str
    random: np.random.Generator

    @classmethod
    def of(cls, seed):
        random = np.random.default_rng(seed)
        layers, inputs = _layers(random), int(random.choice(INPUTS))
        each = sum(layer.W.size for layer in layers)
        inputs = min(inputs, max(3, int(WORK / each)))
        X = _features(random, inputs, len(layers[0].W))
        return cls(layers, X, random.choice(["FP32", "FP64"]), random)

    @property
    def expected(self):
        """The dense answer of the oracle."""
        return oracles.dense_inference(self.layers, self.X)

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


def _layers(random):
    depth = int(random.choice([1, 2, 3, 4, 7, 13, 24]))
    square = random.random() < 0.5
    widths = [int(random.choice(WIDTHS)) for _ in range(1 if square else depth + 1)]
    sizes = widths * (depth + 1) if square else widths
    kind = random.choice(["any", "challenge", "reviving"])
    layers = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        density = float(random.choice([0.02, 0.1, 0.5, 1.0]))
        W = random.choice([-2, -1, 1, 1, 2], (n, m)) * (random.random((n, m)) < density)
        rule = "entries" if kind == "challenge" or random.random() < 0.2 else "all"
        low, high = {"any": (-3, 3), "challenge": (-3, 0), "reviving": (-2, 3)}[str(kind)]
        b = float(random.integers(low, high)) / 2
        if random.random() < 0.4:
            b = random.integers(low, high, m) / 2
        is_last, linear = k == depth - 1, random.random() < 0.3
        activation = "identity" if linear and (is_last or random.random() < 0.2) else "relu"
        # Without a clip, a sum may grow with each layer.
        clip = None if depth <= 3 and random.random() < 0.7 else float(random.choice([1, 2.5, 8]))
        if activation == "identity" and not is_last:
            W = np.sign(W) * (random.random((n, m)) < 4 / n)  # a clip does not limit it from below
        layers.append(oracles.Dense(W.astype(float), b, str(rule), activation, clip))
    return layers


def _features(random, inputs, neurons):
    density = float(random.choice([0.02, 0.1, 0.5, 1.0]))
    X = random.integers(-1, 5, (inputs, neurons)) * (random.random((inputs, neurons)) < density)
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
    """Draw and make a call; return its options, and raise if the answer is wrong."""
    draw = Draw.of(seed)
    net, (X, form) = draw.network(), draw.features()
    options = draw.options(net)
    records = options.pop("records", None)
    expected, way = draw.expected, _way(draw, net, options, folder)
    shapes = [layer.W.shape for layer in draw.layers]
    told = f"seed {seed}: {way}, {form}, {options}, {draw.dtype}, {shapes}"
    bound = 2.0**23 if draw.dtype == "FP32" else 2.0**52
    assert np.abs(expected).max(initial=0) < bound, told
    try:
        Y = _WAYS[way](net, X, options, folder / str(seed))
    except errors.ArgumentError as error:
        # Forced kernels do not compute all layers, and one input needs some memory.
        if "engine" in str(error) or "is too small" in str(error):
            return None
        raise
    assert np.array_equal(Y, expected), told
    if draw.random.random() < 0.1 and len(draw.X) and "memory" not in options:
        assert "expected" in str(gbdnn.plan(net, X, **options)), told
    if records is not None and way == "infer":
        table = gbdnn.per_layer(records, len(net))
        assert table["alive"][-1] == np.count_nonzero(expected.any(axis=1)), told
    return way, form, options["engine"], options["nthreads"]


def _way(draw, net, options, folder):
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
            met.update([check(each, Path(name))])
    sys.stdout.write(json.dumps({"refused": met.pop(None, 0), "different": len(met)}))
