"""Whole calls of `infer`, drawn at random, whose answers are known to the bit.

Weights, biases and features are small multiples of 1/2, and clips keep all sums small, so that each
sum is exact in FP32: an answer must equal the oracle's, whatever the engine, the number of threads,
and the form of the features.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import re
import sys
import tempfile
import tracemalloc
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import graphblas as gb
import machines
import numpy as np
import oracles
import pytest
import scipy.sparse as sp
from patches import divided, eager, narrow, pieces, regrouped, reordered, uncompiled

import gbdnn
from gbdnn import errors, io
from gbdnn.arrays.sources import HyperRows, dense_pays
from gbdnn.engine.progress import RunProgress, watched
from gbdnn.kernels import costs

ENGINES = ("auto", "fused", "fused", "graphblas", "sparse", "full", "full", "lagraph")
WIDTHS = (1, 2, 5, 15, 16, 17, 31, 48, 64, 100, 129, 300, 300, 300, 700, 700)
INPUTS = (0, 1, 2, 3, 7, 16, 33, 40, 200, 1500, 4000)
WORK, WEIGHTS = 1e8, 3e6  # products of a draw, and of an input, about
CALLS = 3  # with the same network and features
SETTINGS = (
    [], [], [divided], [divided, reordered], [regrouped], [narrow], [narrow, divided],
    [narrow, reordered], [narrow, reordered, eager], [narrow, divided, eager], [uncompiled],
)  # fmt: skip


def _field(X):
    wide = np.zeros(X.shape, [("x", "f4"), ("pad", "u1")])
    wide["x"] = X
    return wide["x"]


def _halves(X):
    A = sp.csr_array(X.astype("f4"))
    return sp.csr_array((np.repeat(A.data / 2, 2), np.repeat(A.indices, 2), 2 * A.indptr), A.shape)


def _backwards(X):
    A = sp.csr_array(X[:, ::-1].astype("f4"))
    return sp.csr_array((A.data, X.shape[1] - 1 - A.indices, A.indptr), A.shape)


# All values are exact in FP32. An input may have no entries.
FORMS = [
    ("FP32", lambda X: X.astype("f4")), ("FP64", np.copy),
    ("csr", lambda X: sp.csr_array(X.astype("f4"))),
    ("Matrix", lambda X: gb.Matrix.from_dense(X.astype("f4"), missing_value=0)),
    ("big endian", lambda X: X.astype(">f4")), ("a field", _field),
    ("by columns", lambda X: np.asfortranarray(X, "f4")),
    ("strided", lambda X: np.repeat(np.repeat(X, 3, axis=0), 2, axis=1)[::3, ::2]),
    ("reversed", lambda X: np.ascontiguousarray(X[:, ::-1].astype("f4"))[:, ::-1]),
    ("unaligned", lambda X: np.frombuffer(
        b"x" + X.astype("f4").tobytes(), "f4", offset=1).reshape(X.shape)),
    *((kind, lambda X, kind=kind: sp.csr_array(X).asformat(kind))
      for kind in ("csc", "coo", "lil", "bsr")),
    ("with duplicates", _halves), ("out of order", _backwards),
    ("full", lambda X: gb.Matrix.from_dense(X)), ("csr_matrix", sp.csr_matrix),
    ("with zeros", lambda X: gb.Matrix.from_dense(X.astype("f4"))),
    ("full by columns", lambda X: gb.Matrix.ss.import_fullc(np.asfortranarray(X, "f4"))),
    ("bitmap", lambda X: gb.Matrix.ss.import_bitmapr(
        values=np.where(X != 0, X, 1).astype("f4"), bitmap=X != 0)),
    ("transposed", lambda X: gb.Matrix.from_dense(X.T.copy(), missing_value=0).T),
]  # fmt: skip


def seeds(kind, count=None):
    """Return the seeds of a kind that stress/seeds.py chose, or `count` from GBDNN_SEED on."""
    if count is None:
        return json.loads(Path(__file__).with_name("seeds.json").read_text())[kind]
    first = int(os.environ.get("GBDNN_SEED", "0"))
    return range(first, first + count)


@dataclass
class Draw:
    """A network, features, and what `infer` must return."""

    layers: list[oracles.Dense]
    X: np.ndarray
    expected: np.ndarray
    living: list[tuple[int, int]]  # inputs with an activation after each layer, and activations
    dtype: str
    random: np.random.Generator
    scale: float  # all features, biases and clips are multiples of half of it

    @classmethod
    def of(cls, seed):
        random = np.random.default_rng(seed)
        sizes, inputs = _sizes(random), int(random.choice(INPUTS))
        work = sum(n * m for n, m in itertools.pairwise(sizes))
        X = Y = _features(random, min(inputs, max(3, int(WORK / work))), sizes[0])
        kind = random.choice(["any", "challenge", "reviving", "dying", "dying"])
        layers, living = [], []
        for k in range(len(sizes) - 1):
            layers.append(_layer(random, kind, sizes, k, Y))
            Y = oracles.dense_layer(layers[-1], Y)
            living.append((np.count_nonzero(Y.any(axis=1)), np.count_nonzero(Y)))
        scale = 2.0 ** (100 * (random.random() < 0.2))  # sums of large features are checked
        layers = [replace(x, b=x.b * scale, clip=x.clip and x.clip * scale) for x in layers]
        dtype = random.choice(["FP32", "FP64"])
        return cls(layers, X * scale, Y * scale, living, dtype, random, scale)

    def network(self):
        """The network, with weights in any form that holds them; its layers may be on disk."""
        layers = []
        for layer in self.layers:
            W = layer.W.astype("f4" if self.dtype == "FP32" else "f8")
            form = FORMS[self.random.integers(len(FORMS))][1]
            W = W if np.abs(W).max(initial=0) > 2 else form(W)
            options = {"bias_rule": layer.rule, "activation": layer.activation, "clip": layer.clip}
            layers.append(gbdnn.Layer(W, layer.b, **options, dtype=self.dtype))
        net = gbdnn.Network(layers)
        return net if self.random.random() < 0.7 else net.lazy(net.infos, net.__getitem__)

    def features(self):
        """The features in any form that holds them exactly, and its name."""
        X, forms = self.X, dict(FORMS) if len(self.X) else dict(FORMS[:4])
        if len(X) and (np.floor(X) == X).all() and np.abs(X).max() < 100:
            kind = [np.array, sp.csr_array, gb.Matrix.from_dense][self.random.integers(3)]
            dtype = self.random.choice(["i1", "i2", "i4", "i8"])
            forms["integers"] = lambda X: kind(X.astype(dtype))
        if X.any() and len(np.unique(X[X != 0])) == 1:
            shape = dict(zip(("nrows", "ncols"), X.shape, strict=True))
            forms["one value"] = lambda X: gb.Matrix.from_coo(
                *np.nonzero(X), float(X[X != 0][0]), "FP32", **shape
            )
            if self.random.random() < 0.2:
                return forms["one value"](X), "one value"
        name = str(self.random.choice(sorted(forms)))
        return forms[name](X), name

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
    depth = int(random.choice([1, 2, 3, 4, 7, 13, 24, 50]))
    widths = WIDTHS if depth < 50 else WIDTHS[:9]
    if random.random() < 0.5:
        width = int(random.choice(widths))
        return [width] * (min(depth, 1 + int(WEIGHTS / width**2)) + 1)
    return [int(random.choice(widths)) for _ in range(depth + 1)]


def _layer(random, kind, sizes, k, Y):
    """Layer k, which takes activations Y."""
    n, m, depth = *sizes[k : k + 2], len(sizes) - 1
    density = float(random.choice([0.02, 0.1, 0.5, 1.0]))
    density = max(density, 4 / n if kind == "dying" else 0)
    has_edge = random.random((n, m)) < density
    if random.random() < 0.25:  # neurons with equal edges
        has_edge[:, 1::2] = has_edge[:, : m // 2 * 2 : 2]
    W = random.choice([-2, -1, 1, 1, 2], (n, m)) * has_edge
    rule = "entries" if kind == "challenge" or random.random() < 0.2 else "all"
    low, high = {"challenge": (-3, 0), "reviving": (-2, 3)}.get(kind, (-3, 3))
    b = float(random.integers(low, high)) / 2 or -0.0
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


@contextmanager
def setting(random):
    """The choices of any machine; blocks, windows and kernels of any kind. Yield its patches."""
    patches = SETTINGS[random.integers(len(SETTINGS))] + [pieces] * (random.random() < 0.4)
    with pytest.MonkeyPatch.context() as patch:
        name = str(random.choice(list(machines.MACHINES)))
        if not machines.IS_AVX2:
            patch.setattr(machines.machine_module, "_current", machines.named(name))
        for each in patches:
            each(patch)
        yield patches


def same(X, before):
    """Whether features are those before a call: values, kind and storage."""
    if isinstance(X, sp.csr_array):
        return all(
            np.array_equal(*(getattr(each, name) for each in (X, before)), equal_nan=True)
            for name in ("data", "indices", "indptr")
        )
    if sp.issparse(X):
        return type(X) is type(before) and not (before != X).nnz
    if isinstance(X, np.ndarray):
        return X.dtype == before.dtype and np.array_equal(X, before)
    stored = isinstance(X, gb.Matrix)
    return X.isequal(before, check_dtype=True) and (not stored or X.ss.format == before.ss.format)


def dense(Y):
    return Y.to_dense(fill_value=0).astype(float)


def check(seed, folder):
    """Draw a network and calls; yield what each call was, and raise if an answer is wrong.

    A call has a way, a form of the features, an engine and threads. Then follows the number of
    layers, up to 3, in which inputs die while others live.
    """
    draw = Draw.of(seed)
    bound = draw.scale * (2.0**23 if draw.dtype == "FP32" else 2.0**52)
    assert np.abs(draw.expected).max(initial=0) < bound, f"seed {seed}"
    deaths = sum(before > after > 0 for (before, _), (after, _) in itertools.pairwise(draw.living))
    with setting(draw.random) as patches, ExitStack() as stack:
        if seed % 2:
            stack.enter_context(gb.ss.Context(nthreads=2, chunk=1234))
        net, shapes = draw.network(), [layer.W.shape for layer in draw.layers]
        told = f"seed {seed}: {[each.__name__ for each in patches]}, {draw.dtype}, {shapes}"
        for k in range(CALLS):
            (X, form), options = draw.features(), draw.options(net)
            way, call = _way(draw, options), f"{told}, {form}, {options}"
            if _is_computed(draw, net, X, way, options, folder / f"{seed}.{k}", call):
                yield way, form, options["engine"], options["nthreads"], min(3, deaths)


def _settings():
    """The caller's Context and settings of GraphBLAS."""
    from graphblas.core.ss.context import threadlocal  # which initialises GraphBLAS

    return threadlocal.context, dict(gb.ss.config), dict(threadlocal.context)


class _Rising(RunProgress):
    """Progress whose fraction never falls and never exceeds 1."""

    def dropped(self, k, inputs):
        before = self.fraction
        super().dropped(k, inputs)
        assert before <= self.fraction <= 1


def _is_computed(draw, net, X, way, options, folder, told):
    """Make a call; return False if its options are refused."""
    records, before = options.pop("records", None), (copy.deepcopy(X), _settings())
    is_planned = way == "infer" and draw.random.random() < (0.2 if records is None else 0.5)
    try:
        with watched(_Rising()) if is_planned else nullcontext() as progress:
            Y = _WAYS[way](net, X, options, folder)
    except errors.GbdnnError as error:
        needed = re.search(r"pass memory=(\d+) or more", str(error))
        if needed and way == "infer":
            # Of a network on disk, it suffices for one layer.
            if net.in_memory and told.endswith("advised"):
                raise
            given = options | {"memory": int(needed[1])}
            if records is not None:
                records.clear()
                given["records"] = records
            return _is_computed(draw, net, X, way, given, folder, f"{told}, {needed[0]}, advised")
        if _is_refused(error):
            return False
        raise
    assert np.array_equal(Y, draw.expected), f"{way}, {told}"
    # Else a zero would have another sign in a call with one input than in one with many.
    assert not np.signbit(Y[Y == 0]).any(), f"{way}, {told}"
    assert same(X, before[0]), told
    assert _settings() == before[1], told
    if is_planned:
        plan = gbdnn.plan(net, X, **options)
        assert plan == progress.plan, told
        assert progress.fraction == 1, told
        assert "expected" in str(plan) or "memory" in options, told
    if records is not None:
        table = gbdnn.per_layer(records, len(net))
        alive, entries = zip(*draw.living, strict=True)
        assert table["alive"].tolist() == list(alive), told
        processed = sum(each.inputs * net.infos[each.layer].edges for each in records)
        assert progress is None or progress.done == processed, told
        if not options.get("deduplicate"):
            assert np.array_equal(table["distinct"], alive), told
        # Activations are those of the inputs that were computed.
        is_merged = (table["distinct"] < table["alive"]).any()
        assert is_merged or table["entries"].tolist() == list(entries), told
    return True


def _is_refused(error):
    """Whether a call has options that exclude each other.

    Forced kernels do not compute all layers, one input needs some memory, and without compiled code
    no memory is limited.
    """
    words = "engine", "is too small", "compiled"
    return any(some in str(error) for some in words) and "overflows" not in str(error)


def _stop(_):
    raise KeyError("stop")


def check_fault(seed, folder):
    """Draw a call that fails by a feature, by a sum that leaves the range, or in its callback.

    Clips and ReLUs hide the sum. Return the layer of the fault, -1 for the features, -2 for the
    callback, or None if the draw has no such place or the call's options are refused. Calls before
    and after it are right.
    """
    draw = Draw.of(seed)
    random, good, dtype = draw.random, draw.X.copy(), "f4" if draw.dtype == "FP32" else "f8"
    kind, layer = random.integers(4), draw.layers[0]
    if not draw.X.any():
        return None
    if kind < 2:
        i, j = map(int, map(random.integers, good.shape))
        bad = draw.X[i, j] = [3e38, random.choice([np.nan, np.inf, -np.inf])][kind]
        if kind == 0 and (dtype == "f8" or np.abs(layer.W[j]).max() < 2):
            return None
        at, wanted = -kind, rf"features: contains {bad}" if kind else "layer 0: Y W"
    elif kind == 2:
        at, wanted = -2, "stop"
    else:
        at = int(random.integers(len(draw.layers)))
        spoilt = _overflowing(draw, at, np.finfo(dtype).max)
        if spoilt is None:
            return None
        draw.layers[at], wanted = spoilt, f"layer {at}: Y W"
    with setting(random):
        net, (X, form), options = draw.network(), draw.features(), draw.options(draw.layers)
        options.pop("records", None)
        if kind == 2:
            options["callback"] = _stop
        way = _way(draw, options)
        told, call = f"seed {seed}: {way}, {form}, {options}, {wanted}", _WAYS[way]
        before, plain = _settings(), {k: x for k, x in options.items() if k != "callback"}

        def compute():
            """Make a right call, unless its options are refused."""
            if kind < 3 and way != "store":
                try:
                    Y = call(net, good, plain, folder)
                except errors.GbdnnError as error:
                    if not _is_refused(error):
                        raise
                else:
                    assert np.array_equal(Y, draw.expected), told

        if seed % 2:  # what is kept is of the sums of this call
            compute()
        try:
            call(net, X, options, folder / f"{seed}.bad")
            raise AssertionError(f"no error, {told}")
        except (errors.GbdnnError, KeyError) as error:
            if _is_refused(error):
                return None
            if not re.search(wanted, str(error)):
                raise AssertionError(told) from error
        compute()
        assert _settings() == before, told
    return at


def _overflowing(draw, k, largest):
    """Return layer k with a neuron whose sum overflows for some input; None if none can hide it."""
    Y, layer = draw.X, draw.layers[k]
    for each in draw.layers[:k]:
        Y = oracles.dense_layer(each, Y)
    Y = np.where(Y.min(axis=0) >= 0, Y, 0)  # no other input has a sum of the other sign
    inputs = np.flatnonzero(Y.sum(axis=1) > draw.scale)
    signs = [-1] * (layer.activation == "relu") + [1] * (layer.clip is not None)
    if not (len(inputs) and signs):
        return None
    W = layer.W.copy()
    neuron, some = draw.random.integers(W.shape[1]), draw.random.choice(inputs)
    W[:, neuron] = (Y[some] > 0) * largest * draw.random.choice(signs)
    return replace(layer, W=W)


def _way(draw, options):
    ways = ["infer"] * 6 + ["batches", "compile", "compile", "store", "executor", "at once"]
    if draw.X.shape[0] == 0:
        ways = ["infer", "compile", "executor"]
    if options.get("callback") or options["engine"] == "lagraph":
        ways = ["infer"]
    return str(draw.random.choice(ways))


def _infer(net, X, options, folder):
    Y = gbdnn.infer(net, X, **options)
    found, size = _labelled(Y, dense(Y)), Y.nrows * Y.ncols
    assert Y.nvals == np.count_nonzero(found)
    if Y.nvals and dense_pays(size, Y.nvals):
        is_lagraph = gbdnn.plan(net, X, **options).kernel == "lagraph"
        kinds = ["fullr" if Y.nvals == size else "bitmapr"]
        if HyperRows.of(X) is not None:  # the answer's rows may be those with entries
            kinds.append("hypercsr")
        assert is_lagraph or Y.ss.format in kinds
    return found


def _labelled(Y, found):
    """Return the values of an answer, whose categories and labels are those of NumPy."""
    assert gbdnn.categories(Y).tolist() == np.flatnonzero(found.any(axis=1)).tolist()
    assert gbdnn.argmax(Y).tolist() == found.argmax(axis=1).tolist()
    return found


def _batches(net, X, options, folder):
    X = X if not hasattr(X, "tocsr") else X.tocsr()
    parts = [X[:1], X[1:]] if isinstance(X, np.ndarray | sp.csr_array) else [X]
    return np.vstack([dense(Y) for Y in gbdnn.infer_batches(net, parts, **options)])


def _compile(net, X, options, folder):
    run = gbdnn.compile(net, engine=options["engine"], nthreads=options["nthreads"])
    out = np.full((Y := run(X)).shape, np.nan, Y.dtype)
    assert run(X, out=out) is out
    assert np.array_equal(out, Y)
    return Y.astype(float)


def _executor(net, X, options, folder):
    with ThreadPoolExecutor(2) as pool:
        workers = gbdnn.distributed.Workers(pool, batch_size=20, order="hashed")
        return dense(gbdnn.infer(net, X, executor=workers, **options))


def _at_once(net, X, options, folder):
    """Several calls at the same time."""
    with ThreadPoolExecutor(3) as pool:
        first, *more = pool.map(lambda _: dense(gbdnn.infer(net, X, **options)), range(3))
    assert all(np.array_equal(first, each) for each in more)
    return first


def _store(net, X, options, folder):
    """A network on disk and features in a store, into a store."""
    gbdnn.save(net, folder / "net")
    io.write_features(X, folder / "X")
    stored = io.open_features(folder / "X")
    lazy = gbdnn.load(folder / "net", lazy=True)
    Y = gbdnn.infer_to_store(lazy, stored, folder / "Y", batch_size=100, **options)
    return _labelled(Y, dense(Y.matrix()))


_WAYS = {
    "infer": _infer, "batches": _batches, "compile": _compile, "store": _store,
    "executor": _executor, "at once": _at_once,
}  # fmt: skip


def rough(random):
    """Layers whose sums round, of any depth, and features with equal rows; values are of FP32.

    All edges of a layer may have one value.
    """
    depth = int(random.choice([1, 2, 4, 4, 12, 30]))
    widths = (1, 5, 31, 33, 64, 65, 97, 127, 200, 513, 700) if depth < 5 else (5, 40, 90)
    sizes = [int(n) for n in random.choice(widths, depth + 1)]
    sizes = sizes[:1] * (depth + 1) if random.random() < 0.5 else sizes
    kind, iso = random.choice(["even", "power law"]), random.random() < 0.2
    clip, layers = random.choice([None, 0.75, 2.0]), []
    for n, m in itertools.pairwise(sizes):
        share = random.choice([0, 0.02, 0.1, 0.5, 0.9, 1.0], p=[0.04, *[0.192] * 5])
        if kind == "power law":
            share = 2 * random.zipf(1.6, m) / np.arange(1, n + 1)[:, np.newaxis]
        pattern = random.random((n, m)) < share
        if random.random() < 0.3:  # neurons with equal edges
            pattern[:, 1::2] = pattern[:, : m // 2 * 2 : 2]
        scale = 1.4 / np.sqrt(max(1, pattern.sum() / m))
        W = scale * np.where(pattern, 1.0 if iso else random.normal(0.1, 1, (n, m)), 0)
        b = random.normal(0, 0.2, m) if random.random() < 0.5 else float(random.choice([-0.05, 0]))
        activation = "identity" if random.random() < 0.1 and depth < 5 else "relu"
        layers.append(oracles.Dense(W.astype("f4"), np.float32(b), "all", activation, clip))
    inputs = int(random.choice([1, 7, 33, 64, 100, 300, 900]))
    X = random.normal(0.2, 1, (inputs, sizes[0])) * (random.random((inputs, sizes[0])) < 0.5)
    return layers, X[random.integers(0, max(1, inputs // 2), inputs)].astype("f4")


def _iso(W):
    """One value for all edges, if they have it."""
    values = np.unique(W[W != 0])
    shape = {"nrows": len(W), "ncols": W.shape[1]}
    return gb.Matrix.from_coo(*W.nonzero(), values[0], **shape) if len(values) == 1 else W


def check_bits(seed):
    """Draw a network and calls that divide its inputs, neurons and layers in any way.

    Each kernel of blocks gives one answer, to the bit. Return whether some activations are 0.
    """
    random = np.random.default_rng([seed, 1])
    layers, X = rough(random)
    expected, dtype = oracles.dense_inference(layers, X), str(random.choice(["FP32", "FP64"]))
    scale = max(1.0, np.abs(expected).max(initial=0))
    within = scale * (1e-11 if dtype == "FP64" else 2e-5)
    made = [
        gbdnn.Layer(_iso(x.W), x.b, activation=x.activation, clip=x.clip, dtype=dtype)
        for x in layers
    ]
    nets = gbdnn.Network(made), gbdnn.Network(copy.deepcopy(made))  # what is prepared is kept
    told = f"seed {seed}: {dtype}, {[layer.W.shape for layer in layers]}, {X.shape}"
    engine, has_order = str(random.choice(["fused", "fused", "full"])), random.random() < 0.7

    def ordered(patch):
        """Neurons are reordered, which changes bits, in all calls or in none."""
        patch.setattr(costs, "reordering_pays", lambda _: not has_order)
        if not has_order:
            regrouped(patch)

    with pytest.MonkeyPatch.context() as patch:
        ordered(patch)
        whole = gbdnn.infer(nets[0], X, engine=engine, nthreads=1, deduplicate=False)
    if len(layers) < 5:
        np.testing.assert_allclose(dense(whole), expected, 0, within, err_msg=told)
    with setting(random) as patches, pytest.MonkeyPatch.context() as patch:
        ordered(patch)
        for _ in range(0 if uncompiled in patches else 6):
            options = {"nthreads": int(random.choice([1, 2, 3, 8, 17])), "engine": engine}
            options["deduplicate"] = [True, False, "auto"][random.integers(3)]
            options |= [{}, {"callback": id}, {"memory": "4MiB"}][random.integers(3)]
            given = [np.asarray, sp.csr_array][random.integers(2)](X)
            assert gbdnn.infer(nets[1], given, **options).isequal(whole), (told, patches, options)
            count = min(len(X), int(random.choice([1, 2, 8, 16, 40, 64])))
            rows = np.sort(random.permutation(len(X))[:count])
            found = [dense(gbdnn.infer(nets[1], X[rows], **options))]
            if engine == "fused" and has_order:
                found.append(gbdnn.compile(nets[1], nthreads=options["nthreads"])(X[rows]))
            for Y in found:
                assert np.array_equal(Y, dense(whole)[rows]), (told, patches, options)
    return 0 < np.count_nonzero(expected) < expected.size


def check_memory(seed):
    """Draw a call with memory for a part of it; return the format of the answer.

    What NumPy allocates exceeds `memory` by the answer alone: as rows, and as an array if many of
    its values are nonzero. Some inputs die in the first layer, others become dense.
    """
    random = np.random.default_rng([seed, 2])
    inputs, width, memory, dtype = 20_000, 1024, 32 << 20, str(random.choice(["FP32", "FP64"]))
    W = [layer.W for layer in gbdnn.gallery.radixnet(width, int(random.choice([1, 3, 12])))]
    W[-1] = W[-1][:, : random.choice([3, width, width])].new()
    net = gbdnn.Network([gbdnn.Layer(each, -0.3, clip=32, dtype=dtype) for each in W])
    alive = random.random(inputs) < random.choice([0, 0.001, 0.02, 0.2])
    X = sp.random_array((inputs, width), density=0.002, dtype=net.dtype, rng=random).tolil()
    X[alive] = random.integers(0, 3, (alive.sum(), width))
    X = [X.toarray, lambda: gb.io.from_scipy_sparse(X.tocsr())][random.integers(2)]()
    options = {"engine": str(random.choice(["auto", "fused", "full", "sparse", "graphblas"]))}
    options |= {"deduplicate": bool(random.integers(2)), "nthreads": int(random.choice([1, 3, 8]))}
    gbdnn.infer(net, np.eye(100, width), **options)  # prepares the weights
    tracemalloc.start()
    Y = gbdnn.infer(net, X, memory=memory, **options)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size, kind = Y.dtype.np_type.itemsize, Y.ss.format
    array = (1 + size) * inputs * Y.ncols if kind in ("fullr", "bitmapr") else 0
    answer = Y.nvals * (8 + size) + 8 * inputs + array
    assert taken < 1.5 * memory + answer, f"seed {seed}: {taken}, {answer} of {kind}, {options}"
    return kind


if __name__ == "__main__":  # python tests/support/drawn.py [COUNT]
    count, met, faults = int(sys.argv[1]) if sys.argv[1:] else None, Counter(), Counter()
    with tempfile.TemporaryDirectory() as name:
        for each in seeds("calls", count):
            met.update(check(each, Path(name)))
        for each in seeds("faults", count):
            faults[check_fault(each, Path(name))] += 1
        for each in seeds("bits", count and count // 4):
            check_bits(each)
    found = {"computed": met.total(), "different": len(met), "faulty layers": len(faults)}
    sys.stdout.write(json.dumps(found))
