"""Wrong calls of every public name: a GbdnnError that names the argument, nothing else.

A case of each public function is a call that is right; each of its arguments, also those that
have defaults, is then replaced by values of a wrong kind.
"""

import importlib
import inspect
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from calls import raises

import gbdnn
from gbdnn import errors, graph, io, training

W, X = np.eye(4), np.ones((3, 4))

PATHS = [3, 1.5, None, b"x", object(), ["x"], {}, np.ones(2)]
WHOLES = ["1", 1.5, True, object(), [1], float("nan"), b"1", np.ones(2), -1]
THREADS = [*WHOLES[:-1], 0, -2]
NUMBERS = ["1", object(), 1j, float("nan"), [1], {}, np.ones(2)]
SHARES = [*NUMBERS, True, -1]
NAMES = ["no", "", 3, object(), ["auto"], {}, np.array(["auto", "x"]), np.ones(2), b"auto"]
FLAGS = ["yes", 3, [], object(), np.ones(2)]
FUNCTIONS = [3, "x", [], np.ones(2)]
NETWORKS = [3, None, "x", [], object(), {}, W]
LAYERS = [3, None, "x", object(), [3], ["x"], [None], W, [np.ones(3)], [np.ones((2, 2)) * 1j]]
MATRICES = [
    3, None, "x", object(), [[1.0]], np.ones(3), np.ones((3, 4, 1)), np.full((3, 4), "a"),
    np.full((3, 4), None), X * 1j, X.astype(np.longdouble), np.full((3, 4), np.nan),
]  # fmt: skip
DTYPES = ["no", 3.5, object(), "INT8", [], complex, {}, bool, np.float16]
MANY = [3, None, object(), [3], "x", [None], [{}]]

KINDS = {
    "path": PATHS, "directory": PATHS, "target": PATHS, "format": NAMES, "to": NAMES,
    "paths": [3, 1.5, None, b"x", object(), [3], [None]],
    "images": [3, 1.5, object(), b"x"],
    "neurons": WHOLES, "count": WHOLES, "inputs": WHOLES, "edges": WHOLES, "nthreads": THREADS,
    "n_jobs": THREADS, "memory": ["", "x", "1XB", "-1", *WHOLES[1:]],
    "dead": [*WHOLES[:-1], -2],
    "repeat": WHOLES, "nrows": WHOLES, "ncols": WHOLES,
    "batch": WHOLES, "seed": WHOLES, "workers": WHOLES, "ahead": WHOLES,
    "clip": [*NUMBERS, True, 0, -1], "weight": NUMBERS,
    "threshold": NUMBERS, "gain": NUMBERS, "lowest_bias": NUMBERS, "highest_bias": NUMBERS,
    "bias": ["1", object(), 1j, float("nan"), {}], "bias_rule": NAMES, "activation": NAMES,
    "last_activation": NAMES, "engine": NAMES, "deduplicate": ["no", 3, [], object(), np.ones(2)],
    "orientation": NAMES, "order": NAMES, "layout": NAMES, "of": NAMES, "verify": FLAGS,
    "replace": FLAGS, "allow_empty": FLAGS, "logits": FLAGS, "truth": FLAGS, "check": FLAGS,
    "record": FLAGS, "copy": FLAGS, "lazy": FLAGS, "lossy": FLAGS,
    "progress": FUNCTIONS, "callback": FUNCTIONS, "read": [*FUNCTIONS, None],
    "reopen": FUNCTIONS,
    "net": NETWORKS, "network": NETWORKS, "problem": NETWORKS,
    "epochs": WHOLES, "batch_size": WHOLES, "patience": WHOLES, "X": MATRICES,
    "y": [3, None, "x", object(), np.ones((2, 4)), np.full((3, 4), np.nan), ["a"] * 3],
    "loss": [3, "x", object(), training.SET],
    "optimizer": [3, "x", object(), training.SGD], "schedule": [0.1, "x", training.Cosine],
    "adjustments": [3, "x", object(), [3], training.SET, [training.RigL]],
    "input_dropout": [*NUMBERS, -1, 1],
    "validation": ["x", object(), 2, -1, (X,), (X, X, X), (X, np.ones(3))],
    "checkpoint": [path for path in PATHS if path is not None],
    "Y": [*MATRICES[:4], *MATRICES[6:]],
    "features": MATRICES, "weights": MATRICES, "matrix": [*MATRICES[:5], W],
    "batches": [3, None, object(), X, [3], [None]],
    "x": [3, None, "x", object(), {}, [3], np.ones(3)],
    "labels": [3, object(), "x", [1.5], [[1]], [-1], [None]],
    "categories": [object(), "x", [1.5], [[1]], [-1], [0, 0], [None]],
    "dtype": DTYPES, "systems": [3, None, "x", [3], [["2"]], [[]], object(), [[1.5]]],
    "widths": [3, "x", [1.5], object()], "infos": [3, None, [3], "x"],
    "stats": MANY,
    "executor": [3, "x", object(), ThreadPoolExecutor],
    "source": [3, None, "x", object(), [W]], "prefix": [3, b"x", object(), ["x"]],
    "other": [], "found": [3, None, "x", object(), [W]],
    "shape": [3, None, "ab", (1,), (1, 2, 3), (-1, 2), (1.5, 2), ("a", "b")],
    "run": [3, None, "x", object()],
    "ax": [3, "x", object()], "title": [3, object(), ["x"]],
    "A": [*MATRICES[:5], W], "G": [*MATRICES[:5], X], "nodes": [3, "x", object(), [0.5], W],
    "aggregate": NAMES, "hops": WHOLES, "all_hops": FLAGS, "kind": NAMES, "self_loops": FLAGS,
    "self_weights": MATRICES[:5],
    **dict.fromkeys(
        (
            "learning_rate", "momentum", "weight_decay", "beta1", "beta2", "epsilon", "final",
            "warmup", "factor", "fraction", "until", "strength", "negligible", "begin", "end",
            "density", "validation_fraction",
        ),
        SHARES,
    ),
    "every": WHOLES, "outputs": WHOLES, "degree": WHOLES,
    "nesterov": FLAGS, "distribution": NAMES, "scope": NAMES,
    "at": [3, None, "x", object(), [2.0], [0.5, 0.1], ["a"], [[0.5]]],
    "sizes": [3, None, "x", object(), [3], ["a", "b"], [1.5, 2], [0, 1], [[1], [2]]],
    "hidden_layer_sizes": [3, None, "x", object(), ["a"], [1.5], [0], [[1]]],
    "rewire": [3, "x", object(), [3], training.SET],
    "sample_weight": [3, "x", object(), np.ones(2), [-1, 1, 1], np.zeros(3), [[1, 1, 1]]],
    "clip_norm": [*NUMBERS, 0, -1],
    "warm_start": FLAGS, "class_weight": ["x", 3, object()],
    "random_state": ["x", 1.5, object(), -1],
    "start": ["a", 1.5, object()], "stop": ["a", 1.5, object()], "index": ["a", 1.5, None],
}  # fmt: skip
BY_NAME = {
    ("layers", "depth"): WHOLES, ("layers", "network"): LAYERS,
    ("neurons", "plot"): ["x", 1.5, object(), {}, -1],
    ("images", "pixels"): [3, None, "x", object(), np.ones(3), np.full((1, 2, 2), "a"), [[1], 2]],
    ("stats", "callback"): FUNCTIONS[:2], ("inputs", "flag"): FLAGS, ("network", "layers"): LAYERS,
    ("features", "written"): [*MATRICES[:4], *MATRICES[6:]],
    ("weight", "attribute"): [], ("source", "path"): PATHS,
}  # fmt: skip


def right(call, kinds=None, like=None, **needed):
    """A right call: its arguments, those that have defaults too, and the kinds of some."""
    parameters = inspect.signature(like or call).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}
    defaults |= {"replace": True} if "replace" in defaults else {}  # calls are repeated
    return call, defaults | needed, kinds or {}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The right call of each public function and method."""
    folder = tmp_path_factory.mktemp("calls")
    net = gbdnn.Network([gbdnn.Layer(W, -0.25, clip=1), gbdnn.Layer(W)])
    square, layer, A = gbdnn.gallery.radixnet(1024, 1), net[0], np.eye(3)
    gbdnn.save(square, folder / "DNN" / "neuron1024", "tsv", lossy=True)
    gbdnn.save(net, folder / "mm", "matrix-market", lossy=True)
    gbdnn.save(net, folder / "net")
    gbdnn.io.write_features(X, folder / "X")
    io.write_features(gbdnn.infer([W], X), folder / "x.tsv")
    (folder / "MNIST").mkdir()
    images = gbdnn.gallery.digits()[:20]
    features = gbdnn.gallery.features_from_images(images)
    io.write_features(features, folder / "MNIST/sparse-images-1024.tsv")
    io.write_categories([0, 2], ids := folder / "neuron1024-l1-categories.tsv")
    (folder / "x.idx").write_bytes(b"\0\0\x08\x01\0\0\0\x01\5")
    stats = []
    gbdnn.infer(net, X, callback=stats.append)
    batch = gbdnn.distributed.BatchStats(
        batch=0, worker="a", inputs=1, alive=1, entries=1, seconds=1.0, bytes=1, threads=1,
        done=1, batches=1,
    )  # fmt: skip
    problem = gbdnn.challenge.Problem(name="x", network=square, features=features)
    stored, lists, deep = io.open_features(folder / "X"), {"layers": "network"}, {"layers": "depth"}
    found = [
        right(gbdnn.CompiledNetwork, network=net, nthreads=1),
        right(gbdnn.Layer, weights=W),
        right(layer.astype, dtype="FP32"),
        right(layer.isequal, other=layer),
        right(layer.difference, found=layer),
        right(gbdnn.LayerInfo, shape=(1, 2), edges=1, gain=1.0, dtype="FP32"),
        right(layer.info.astype, dtype="FP32"),
        right(layer.info.difference, found=layer),
        right(gbdnn.Network, lists, layers=[W]),
        right(gbdnn.Network.lazy, infos=net.infos, read=net.__getitem__),
        right(gbdnn.load(folder / "net", lazy=True).loaded),
        right(net.astype, dtype="FP32"),
        right(net.isequal, other=net),
        right(net.__getitem__, index=0),
        right(gbdnn.argmax, Y=X),
        right(gbdnn.categories, Y=X),
        right(gbdnn.compile, lists, layers=[W]),
        right(gbdnn.infer, lists, layers=[W], features=X),
        right(lambda layers, batches, **rest: list(gbdnn.infer_batches(layers, batches, **rest)),
              lists, like=gbdnn.infer, layers=[W], batches=[X]),
        right(gbdnn.infer_to_store, lists, layers=[W], features=X, path=folder / "Y"),
        right(gbdnn.load, deep, path=folder / "net", format="store"),
        right(io.convert, deep | {"source": "path"}, source=folder / "net", target=folder / "h"),
        right(gbdnn.per_layer, deep, stats=stats),
        right(gbdnn.gallery.radix_layers, systems=[[2, 2]]),
        right(gbdnn.gallery.radixnet, deep, neurons=1024, layers=1),
        right(gbdnn.save, lists, layers=[W], path=folder / "save"),
        right(gbdnn.train, network=net, X=X, y=X, epochs=1, checkpoint=folder / "run"),
        right(stored.sparse_rows, start=0, stop=2),
        right(stored.batches, inputs=2),
        right(gbdnn.load, deep, path=folder / "mm", prefix="n4-l", clip=1.0),
        right(gbdnn.load, deep, path=folder / "DNN", neurons=1024),
        right(io.open_features, path=folder / "X"),
        right(io.read_categories, path=ids),
        right(io.read_features, path=folder / "x.tsv"),
        right(io.read_labels, path=folder / "x.idx"),
        right(io.to_scipy, network=net),
        right(io.write_categories, categories=[1], path=folder / "c.tsv"),
        right(io.write_features, {"features": "written"}, features=X, path=folder / "d"),
        right(io.write_labels, labels=[1], path=folder / "y.csv"),
        right(gbdnn.gallery.features_from_images, {"images": "pixels"}, images=images[:2]),
        right(gbdnn.challenge.generate, deep, layers=1, inputs=2),
        right(gbdnn.challenge.load, deep, directory=folder, neurons=1024, layers=1, inputs=3),
        right(gbdnn.challenge.run, problem=problem, check=False),
        right(gbdnn.distributed.Workers, executor=ThreadPoolExecutor(1)),
        right(gbdnn.distributed.balance, stats=[batch]),
        *map(right, (training.SGD, training.Adam, training.Cosine, training.Stepwise)),
        *map(right, (training.SET, training.RigL)),
        right(training.GroupLasso, strength=0.1),
        right(training.MagnitudePruning, density=0.5),
        right(training.erdos_renyi, sizes=[4, 3], density=0.5),
        right(training.initialized, {"network": "layers"}, network=net),
        right(training.with_ends, {"network": "layers"}, network=net, inputs=5, outputs=2),
        right(training.compact, {"network": "layers", "inputs": "flag"}, network=net),
        right(graph.Convolution, weights=W), right(graph.infer, lists, layers=[W], features=X, A=A),
        right(graph.normalized, {"weight": "attribute"}, G=A),
        right(graph.propagate, A=A, features=X),
        right(graph.spmm, A=A, Y=X),
    ]  # fmt: skip
    if importlib.util.find_spec("sklearn"):
        for kind in (gbdnn.sklearn.SparseClassifier, gbdnn.sklearn.SparseRegressor):
            small = {"hidden_layer_sizes": (3,), "density": 0.5, "epochs": 1}
            found.append(right(partial(fitted, kind), like=kind, **small))
    if importlib.util.find_spec("torch"):
        gbdnn.save(net, path := folder / "net.pt", lossy=True)
        found += [
            right(io.from_torch, source={"a.weight": W}, activation="relu"),
            right(io.to_torch, network=net),
            right(gbdnn.load, deep, path=path, activation="relu"),
        ]
    if importlib.util.find_spec("onnx"):
        gbdnn.save(net, path := folder / "net.onnx")
        found.append(right(gbdnn.load, deep, path=path))
    if importlib.util.find_spec("matplotlib"):
        pytest.importorskip("matplotlib").use("agg")
        trained = gbdnn.train(net, X, X, epochs=1)
        viz, plots = gbdnn.viz, {"layers": "depth", "neurons": "plot"}
        found += [
            right(viz.plot_activity, plots, stats=stats),
            right(viz.plot_history, run=trained),
            right(viz.plot_layer_times, plots, stats=stats),
        ]  # fmt: skip
    return found


def fitted(kind, **parameters):
    """An estimator is made with any values, and refuses wrong ones when it is fitted."""
    kind(**parameters).fit(np.ones((6, 4)), [0, 1, 0, 1, 0, 1])


def test_the_calls_are_right(calls):
    for call, arguments, _ in calls:
        call(**arguments)


def test_wrong_values_are_errors_that_name_the_argument(calls):
    faults, count = [], 0
    for call, arguments, kinds in calls:
        for argument, value in wrong(arguments, kinds):
            count += 1
            shown = f"{getattr(call, '__qualname__', call)}({argument}={value!r})"
            try:
                call(**{**arguments, argument: value})
            except gbdnn.GbdnnError as err:
                if not any(word in str(err) for word in (argument, *SAYS.get(argument, ()))):
                    faults.append(f"{shown}: does not name it: {err}")
            except Exception as err:
                faults.append(f"{shown}: {type(err).__name__}: {err}")
            else:
                faults.append(f"{shown}: is accepted")
    assert count > 2200  # without optional packages, too
    assert not faults, "\n".join([f"{len(faults)} of {count}", *faults])


def wrong(arguments, kinds):
    """Each argument with its wrong values; None is right where it is the default."""
    for argument, value in arguments.items():
        kind = kinds.get(argument)
        for other in BY_NAME[argument, kind] if kind else KINDS[argument]:
            if other is not None or value is not None:
                yield argument, other


# What an error may say in place of the argument's name.
SAYS = {
    "layers": ["layer 0"], "infos": ["layer 0"], "x": ["layer 0", "categories", "is saved"],
    "batches": ["batch 0"], "systems": ["radix"], "widths": ["width is"],
    "lowest_bias": ["bias"], "highest_bias": ["bias"], "dtype": ["GraphBLAS type"],
    "source": ["weight"], "X": ["features"],
}  # fmt: skip


def test_an_address_is_no_path(tmp_path, monkeypatch):
    """Neither read nor written: a folder ``memory:`` would be made, in this folder."""
    monkeypatch.chdir(tmp_path)
    for call in (gbdnn.load, lambda path: gbdnn.io.write_features(X, path)):
        for address in ("s3://bucket/net", Path("gs://bucket/net")):
            raises(errors.ArgumentError, r"is a URL.*Object stores", call, address)
    assert not list(tmp_path.iterdir())
    gbdnn.io.write_features(X, "run:3")  # a name with a colon is a name
    assert io.read_features("run:3").nvals == X.size
