"""Wrong calls of every public name: a GbdnnError that names the argument, nothing else.

A case of each public function is a call that is right; each of its arguments is then replaced by
values of a wrong kind.
"""

import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gbdnn
from gbdnn import errors, io, training

W, X = np.eye(4), np.ones((3, 4))

PATHS = [3, 1.5, None, b"x", object(), ["x"], {}, np.ones(2)]
WHOLES = ["1", 1.5, True, object(), [1], float("nan"), b"1", np.ones(2), -1]
THREADS = [*WHOLES[:-1], 0, -2]
NUMBERS = ["1", object(), 1j, float("nan"), [1], {}, np.ones(2)]
SHARES = [*NUMBERS, True, -1]
NAMES = ["no", 3, object(), ["auto"], {}, np.array(["auto", "x"]), np.ones(2), b"auto"]
FLAGS = ["yes", 3, [], object(), np.ones(2)]
FUNCTIONS = [3, "x", [], np.ones(2)]
NETWORKS = [3, None, "x", [], object(), {}, W]
LAYERS = [3, None, "x", object(), [3], ["x"], [None], W, [np.ones(3)], [np.ones((2, 2)) * 1j]]
MATRICES = [
    3, None, "x", object(), [[1.0]], np.ones(3), np.ones((3, 4, 1)), np.full((3, 4), "a"),
    np.full((3, 4), None), X * 1j, np.full((3, 4), np.nan),
]  # fmt: skip
DTYPES = ["no", 3.5, object(), "INT8", [], complex, {}]
MANY = [3, None, object(), [3], "x", [None], [{}]]

KINDS = {
    "path": PATHS, "directory": PATHS, "target": PATHS, "format": NAMES, "to": NAMES,
    "paths": [3, 1.5, None, b"x", object(), [3], [None]],
    "images": [3, 1.5, object(), b"x"],
    "neurons": WHOLES, "count": WHOLES, "inputs": WHOLES, "edges": WHOLES, "nthreads": THREADS,
    "n_jobs": THREADS, "memory": ["", "x", "1XB", "-1", *WHOLES[1:]],
    "repeat": WHOLES, "nrows": WHOLES, "ncols": WHOLES, "ninputs": WHOLES,
    "batch": WHOLES, "root": WHOLES, "seed": WHOLES, "workers": WHOLES,
    "ahead": WHOLES,
    "seconds": [*NUMBERS, 0, -1], "clip": NUMBERS, "weight": NUMBERS, "threshold": NUMBERS,
    "gain": NUMBERS, "lowest_bias": NUMBERS, "highest_bias": NUMBERS,
    "bias": ["1", object(), 1j, float("nan"), {}], "bias_rule": NAMES, "activation": NAMES,
    "last_activation": NAMES, "engine": NAMES, "deduplicate": ["no", 3, [], object(), np.ones(2)],
    "orientation": NAMES, "order": NAMES, "layout": NAMES, "answer": NAMES, "of": NAMES,
    "verify": FLAGS, "restart": FLAGS, "resumes": FLAGS,
    "allow_empty": FLAGS, "logits": FLAGS, "truth": FLAGS, "check": FLAGS,
    "record": FLAGS, "copy": FLAGS, "lazy": FLAGS, "lossy": FLAGS,
    "progress": FUNCTIONS, "callback": FUNCTIONS, "read": [*FUNCTIONS, None],
    "reopen": FUNCTIONS,
    "net": NETWORKS, "network": NETWORKS, "problem": NETWORKS,
    "epochs": WHOLES, "batch_size": WHOLES, "patience": WHOLES, "X": MATRICES,
    "y": [3, None, "x", object(), np.ones((2, 4)), np.full((3, 4), np.nan), ["a"] * 3],
    "loss": [3, "x", object(), training.CrossEntropy],
    "optimizer": [3, "x", object(), training.SGD], "schedule": [0.1, "x", training.Cosine],
    "adjustments": [3, "x", object(), [3], training.SET, [training.RigL]],
    "input_dropout": [*NUMBERS, -1, 1],
    "validation": ["x", object(), 2, -1, (X,), (X, X, X), (X, np.ones(3))],
    "checkpoint": [path for path in PATHS if path is not None],
    "Y": MATRICES, "features": MATRICES, "weights": MATRICES, "matrix": [*MATRICES[:5], W],
    "batches": [3, None, object(), X, [3], [None]],
    "x": [3, None, "x", object(), {}, [3], np.ones(3)],
    "rows": [object(), "x", [1.5], [[1]], [-1], [0, 0], [None]],
    "dtype": DTYPES, "systems": [3, None, "x", [3], [["2"]], [[]], object(), [[1.5]]],
    "widths": [3, "x", [1.5], object()], "infos": [3, None, [3], "x"],
    "stats": MANY, "rates": MANY, "published": MANY,
    "executor": [3, "x", object(), ThreadPoolExecutor],
    "source": [3, None, "x", object(), [W]], "prefix": [3, b"x", object(), ["x"]],
    "other": [], "found": [3, None, "x", object(), [W]],
    "shape": [3, None, "ab", (1,), (1, 2, 3), (-1, 2), (1.5, 2), ("a", "b")],
    "run": [3, None, "x", object()],
    "ax": [3, "x", object()], "figure": [3, None, "x", object()], "title": [3, object(), ["x"]],
    "comm": [3, "x", object()], "cuts": [3, "x", ["a"], [1.5]],
    **dict.fromkeys(
        (
            "learning_rate", "momentum", "weight_decay", "beta1", "beta2", "epsilon", "final",
            "warmup", "factor", "fraction", "until", "strength", "negligible", "begin", "end",
            "density", "alive", "fine_tuning_dropout", "validation_fraction",
        ),
        SHARES,
    ),
    **dict.fromkeys(["every", "outputs", "degree", "fine_tuning_epochs"], WHOLES),
    "fine_tuning_optimizer": [3, "x", object(), training.SGD],
    "nesterov": FLAGS, "distribution": NAMES, "scope": NAMES,
    "at": [3, None, "x", object(), [2.0], [0.5, 0.1], ["a"], [[0.5]]],
    "sizes": [3, None, "x", object(), [3], ["a", "b"], [1.5, 2], [0, 1], [[1], [2]]],
    "hidden": [3, None, "x", object(), ["a"], [1.5], [0], [[1]]],
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
    ("stats", "callback"): FUNCTIONS[:2], ("inputs", "flag"): FLAGS, ("net", "layers"): LAYERS,
    ("edges", "number"): WHOLES, ("source", "path"): PATHS, ("network", "layers"): NETWORKS,
}  # fmt: skip


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """The right call of each public function and method: a callable, arguments, kinds of some."""
    folder = tmp_path_factory.mktemp("calls")
    net = gbdnn.Network([gbdnn.Layer(W, -0.25, clip=1), gbdnn.Layer(W)])
    square = gbdnn.radixnet(1024, 1)
    io.write_network(square, folder / "DNN" / "neuron1024", lossy=True)
    io.write_matrix_market(net, folder / "mm", lossy=True)
    gbdnn.save(net, folder / "net")
    gbdnn.save(X, folder / "X")
    io.write_tsv(gbdnn.infer([W], X), folder / "x.tsv")
    (folder / "MNIST").mkdir()
    images = gbdnn.gallery.digits()[:20]
    io.write_tsv(
        gbdnn.gallery.features_from_images(images), folder / "MNIST/sparse-images-1024.tsv"
    )
    io.write_categories([0, 2], folder / "neuron1024-l1-categories.tsv")
    (folder / "x.idx").write_bytes(b"\0\0\x08\x01\0\0\0\x01\5")
    stats, batches = [], []
    gbdnn.infer(net, X, callback=stats.append)
    batches.append(
        gbdnn.distributed.BatchStats(
            batch=0,
            worker="a",
            inputs=1,
            alive=1,
            entries=1,
            seconds=1.0,
            bytes=1,
            threads=1,
            done=1,
            batches=1,
        )
    )
    problem = gbdnn.challenge.Problem(
        name="x", network=square, features=gbdnn.gallery.features_from_images(images[:3])
    )
    options = {
        "bias": -0.5, "bias_rule": "all", "clip": 1.0, "last_activation": "identity",
        "dtype": "FP32", "engine": "sparse",
        "deduplicate": False, "memory": 1 << 24, "nthreads": 1, "callback": None,
    }  # fmt: skip
    over = {"executor": None}
    of_compile = {name: options[name] for name in ("bias", "bias_rule", "clip", "dtype")}
    last = {"last_activation": "identity"}
    stored, layer = io.open_features(folder / "X"), net[0]
    lists = {"layers": "network"}
    deep = {"layers": "depth"}
    found = {
        "gbdnn.serving.CompiledNetwork": (
            gbdnn.serving.CompiledNetwork, {"network": net, "nthreads": 1}, {}),
        "gbdnn.Layer": (gbdnn.Layer, {
            "weights": W, "bias": 0.0, "bias_rule": "all", "activation": "relu", "clip": 1,
            "dtype": "FP32", "copy": True}, {}),
        "gbdnn.Layer.astype": (layer.astype, {"dtype": "FP32"}, {}),
        "gbdnn.Layer.isequal": (layer.isequal, {"other": layer}, {}),
        "gbdnn.model.LayerInfo": (gbdnn.model.LayerInfo, {
            "shape": (1, 2), "edges": 1, "gain": 1.0, "dtype": "FP32", "lowest_bias": 0.0,
            "highest_bias": 0.0, "bias_rule": "all", "activation": "relu", "clip": 1}, {}),
        "gbdnn.model.LayerInfo.astype": (layer.info.astype, {"dtype": "FP32"}, {}),
        "gbdnn.Layer.difference": (layer.difference, {"found": layer}, {}),
        "gbdnn.model.LayerInfo.difference": (layer.info.difference, {"found": layer}, {}),
        "gbdnn.Network": (gbdnn.Network, {"layers": [W], **of_compile, **last}, lists),
        "gbdnn.Network.lazy": (gbdnn.Network.lazy, {
            "infos": net.infos, "read": net.__getitem__, "reopen": None}, {}),
        "gbdnn.Network.loaded": (
            gbdnn.load(folder / "net", lazy=True).loaded, {"progress": None}, {}),
        "gbdnn.Network.astype": (net.astype, {"dtype": "FP32"}, {}),
        "gbdnn.Network.isequal": (net.isequal, {"other": net}, {}),
        "gbdnn.Network.__getitem__": (net.__getitem__, {"index": 0}, {}),
        "gbdnn.argmax": (gbdnn.argmax, {"Y": X}, {}),
        "gbdnn.categories": (gbdnn.categories, {"Y": X}, {}),
        "gbdnn.compile": (
            gbdnn.compile, {"layers": [W], **of_compile, **last, "nthreads": 1}, lists),
        "gbdnn.infer": (
            gbdnn.infer,
            {"layers": [W], "features": X, **options, **over},
            lists),
        "gbdnn.infer_batches": (
            lambda layers, batches, **rest: list(gbdnn.infer_batches(layers, batches, **rest)),
            {"layers": [W], "batches": [X], **options, **over}, lists),
        "gbdnn.infer_to_store": (gbdnn.infer_to_store, {
            "layers": [W], "features": X, "path": folder / "Y", "batch": 2, "executor": None,
            "restart": False, "progress": None},
            lists),
        "gbdnn.load": (gbdnn.load, {
            "path": folder / "net", "verify": True, "lazy": None, "progress": None,
            "format": "store"}, {}),
        "gbdnn.io.convert": (io.convert, {
            "source": folder / "net", "target": folder / "h", "to": "store", "lossy": True,
            "progress": None}, {"source": "path"}),
        "gbdnn.inference.per_layer": (
            gbdnn.inference.per_layer, {"stats": stats, "layers": 2}, deep),
        "gbdnn.gallery.radix_layers": (gbdnn.gallery.radix_layers, {
            "systems": [[2, 2]], "widths": None, "weight": 1.0, "dtype": "FP32"}, {}),
        "gbdnn.radixnet": (gbdnn.radixnet, {
            "neurons": 1024, "layers": 1, "seed": 0, "dtype": "FP32", "lazy": True}, deep),
        "gbdnn.save": (gbdnn.save, {"x": net, "path": folder / "save", "progress": None}, {}),
        "gbdnn.train": (gbdnn.train, {
            "net": net, "X": X, "y": np.ones((3, 4)), "epochs": 1, "batch_size": 2, "loss": None,
            "optimizer": None, "schedule": None, "adjustments": (),
            "validation": None, "patience": None, "seed": 0, "nthreads": 1, "callback": None,
            "checkpoint": folder / "run", "sample_weight": None}, {}),
        "gbdnn.io.StoredFeatures.matrix": (stored.matrix, {}, {}),
        "gbdnn.io.StoredFeatures.sparse_rows": (stored.sparse_rows, {"start": 0, "stop": 2}, {}),
        "gbdnn.io.StoredFeatures.batches": (stored.batches, {"inputs": 2}, {}),
        "gbdnn.io.iter_layers": (
            io.iter_layers, {
                "directory": folder, "neurons": 1024, "layers": 1, **of_compile,
                "progress": None}, deep),
        "gbdnn.io.open_features": (io.open_features, {"path": folder / "X", "verify": True}, {}),
        "gbdnn.io.read_categories": (io.read_categories, {
            "path": folder / "neuron1024-l1-categories.tsv", "ninputs": 3,
            "allow_empty": False}, {}),
        "gbdnn.io.read_features": (io.read_features, {
            "path": folder / "x.tsv", "nrows": 9, "ncols": 9, "dtype": "FP32"}, {}),
        "gbdnn.io.read_labels": (
            io.read_labels, {"path": folder / "x.idx"}, {}),
        "gbdnn.io.read_idx": (io.read_idx, {"path": folder / "x.idx"}, {}),
        "gbdnn.io.read_matrix_market": (io.read_matrix_market, {
            "paths": folder / "mm", "prefix": "n4-l", "bias": None, "bias_rule": "all",
            "clip": None, "last_activation": "relu", "dtype": "FP32"}, {}),
        "gbdnn.io.read_tsv": (io.read_tsv, {
            "path": folder / "x.tsv", "nrows": 9, "ncols": 9, "dtype": "FP32",
            "orientation": "rowwise"}, {}),
        "gbdnn.io.to_scipy": (io.to_scipy, {"net": net}, {}),
        "gbdnn.io.write_categories": (
            io.write_categories, {"rows": [1], "path": folder / "c"}, {}),
        "gbdnn.io.write_features": (io.write_features, {
            "batches": [X], "path": folder / "d", "ncols": 4, "dtype": "FP32", "progress": None},
            {}),
        "gbdnn.io.write_matrix_market": (
            io.write_matrix_market,
            {"net": net, "directory": folder / "e", "lossy": True}, {}),
        "gbdnn.io.write_network": (
            io.write_network, {"net": net, "directory": folder / "f", "lossy": True}, {}),
        "gbdnn.io.write_tsv": (
            io.write_tsv, {"matrix": gbdnn.infer([W], X), "path": folder / "g"}, {}),
        "gbdnn.gallery.features_from_images": (gbdnn.gallery.features_from_images, {
            "images": images[:2], "neurons": 16, "inputs": 2, "threshold": 0.5, "order": "F",
            "dtype": "FP32"}, {"images": "pixels"}),
        "gbdnn.challenge.generated": (gbdnn.challenge.generated, {
            "neurons": 1024, "layers": 1, "images": None, "inputs": 2, "seed": 0}, deep),
        "gbdnn.challenge.official": (gbdnn.challenge.official, {
            "directory": folder, "neurons": 1024, "layers": 1, "images": None, "inputs": 3,
            "truth": True, "progress": None}, deep),
        "gbdnn.challenge.run": (gbdnn.challenge.run, {
            "problem": problem, "nthreads": 1, "engine": "sparse", "deduplicate": False,
            "memory": 1 << 24, "repeat": 1, "check": True, "record": False,
            "progress": None, "executor": None}, {}),
        "gbdnn.distributed.Workers": (gbdnn.distributed.Workers, {
            "executor": ThreadPoolExecutor(1), "count": 1, "ahead": 1, "order": "given",
            "batch": 1, "stats": None}, {"stats": "callback"}),
        "gbdnn.distributed.balance": (
            gbdnn.distributed.balance, {"stats": batches, "workers": 1}, {}),
    }  # fmt: skip
    found |= {
        "gbdnn.training.SGD": (training.SGD, {"clip_norm": None,
            "learning_rate": 0.1, "momentum": 0.9, "nesterov": False, "weight_decay": 0.0}, {}),
        "gbdnn.training.Adam": (training.Adam, {"clip_norm": None,
            "learning_rate": 0.1, "beta1": 0.9, "beta2": 0.9, "epsilon": 1e-8,
            "weight_decay": 0.0}, {}),
        "gbdnn.training.Constant": (training.Constant, {}, {}),
        "gbdnn.training.Cosine": (training.Cosine, {"final": 0.0, "warmup": 0.0}, {}),
        "gbdnn.training.Stepwise": (training.Stepwise, {"at": (0.5,), "factor": 0.1}, {}),
        "gbdnn.training.CrossEntropy": (training.CrossEntropy, {}, {}),
        "gbdnn.training.SquaredError": (training.SquaredError, {}, {}),
        "gbdnn.training.GroupLasso": (training.GroupLasso, {
            "strength": 0.1, "every": 4, "negligible": 0.0}, {}),
        "gbdnn.training.InputDropout": (training.InputDropout, {"fraction": 0.1}, {}),
        "gbdnn.training.MagnitudePruning": (training.MagnitudePruning, {
            "density": 0.5, "begin": 0.0, "end": 0.5, "every": 4, "scope": "layer"}, {}),
        "gbdnn.training.SET": (training.SET, {"fraction": 0.1, "every": None}, {}),
        "gbdnn.training.RigL": (training.RigL, {"fraction": 0.1, "every": 3, "until": 0.5}, {}),
        "gbdnn.training.erdos_renyi": (training.erdos_renyi, {
            "sizes": [4, 3], "density": 0.5, "distribution": "erk", "seed": 0, "dtype": "FP32"},
            {}),
        "gbdnn.training.initialized": (
            training.initialized, {"net": net, "seed": 0}, {"net": "layers"}),
        "gbdnn.training.with_ends": (training.with_ends, {
            "net": net, "inputs": 5, "outputs": 2, "degree": 2, "seed": 0}, {"net": "layers"}),
        "gbdnn.training.compact": (
            training.compact, {"net": net, "inputs": False}, {"net": "layers", "inputs": "flag"}),
    }  # fmt: skip
    if importlib.util.find_spec("sklearn"):
        found |= {
            f"gbdnn.training.{name}": (fitted(name), {
                "hidden": (3,), "density": 0.5, "distribution": "erk", "epochs": 1,
                "batch_size": 2, "optimizer": "adam", "learning_rate": None, "rewire": None,
                "input_dropout": 0.0, "validation_fraction": None, "patience": None,
                "random_state": 0, "n_jobs": 1, "dtype": "FP32", "weight_decay": None,
                "schedule": None, "warm_start": False, "callback": None,
                **({"class_weight": None} if name == "SparseClassifier" else {})}, {})
            for name in ("SparseClassifier", "SparseRegressor")
        }  # fmt: skip
    if importlib.util.find_spec("torch"):
        io.write_torch(
            net, folder / "net.pt", lossy=True
        )  # to be read, in whatever order tests run
        found |= {
            "gbdnn.io.from_torch": (io.from_torch, {
                "source": {"a.weight": W}, "clip": 1, "last_activation": "relu",
                "dtype": "FP32", "logits": False}, {}),
            "gbdnn.io.to_torch": (io.to_torch, {"net": net, "layout": "strided"}, {}),
            "gbdnn.io.write_torch": (
                io.write_torch, {"net": net, "path": folder / "net.pt", "lossy": True}, {}),
            "gbdnn.io.read_torch": (io.read_torch, {
                "path": folder / "net.pt", "clip": 1, "last_activation": "relu",
                "dtype": "FP32"}, {}),
        }  # fmt: skip
    if importlib.util.find_spec("onnx"):
        found |= {
            "gbdnn.io.write_onnx": (
                io.write_onnx, {"net": net, "path": folder / "net.onnx"}, {}),
            "gbdnn.io.read_onnx": (
                io.read_onnx, {"path": folder / "net.onnx", "dtype": "FP32", "logits": False}, {}),
        }  # fmt: skip
    if importlib.util.find_spec("matplotlib"):
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("agg")
        trained = gbdnn.train(net, X, np.ones((3, 4)), epochs=1)
        viz, plots = gbdnn.viz, {"layers": "depth", "neurons": "plot"}
        found |= {
            "gbdnn.viz.plot_activity": (viz.plot_activity, {
                "stats": stats, "ax": None, "neurons": [4, 4], "layers": 2}, plots),
            "gbdnn.viz.plot_balance": (viz.plot_balance, {
                "stats": batches, "ax": None, "of": "seconds", "workers": 1}, {}),
            "gbdnn.viz.plot_edge_rates": (viz.plot_edge_rates, {
                "rates": [], "ax": None, "published": None}, {}),
            "gbdnn.viz.plot_history": (
                viz.plot_history, {"run": trained, "ax": None, "of": "loss"}, {}),
            "gbdnn.viz.history_figure": (
                viz.history_figure, {"run": trained, "title": None}, {}),
            "gbdnn.viz.plot_layer_times": (viz.plot_layer_times, {
                "stats": stats, "ax": None, "layers": 2}, plots),
            "gbdnn.viz.run_figure": (viz.run_figure, {
                "stats": stats, "neurons": 4, "layers": 2, "title": "x"}, plots),
        }  # fmt: skip
    return found


def fitted(name):
    """An estimator is made with any values, and refuses wrong ones when it is fitted."""

    def call(**parameters):
        model = getattr(training, name)(**parameters)
        model.fit(np.ones((6, 4)), [0, 1, 0, 1, 0, 1])

    return call


def wrong(calls):
    for name, (call, right, kinds) in calls.items():
        for argument in right:
            kind = kinds.get(argument)
            for value in BY_NAME[argument, kind] if kind else KINDS[argument]:
                if value is None and right[argument] is None:
                    continue
                yield name, call, right, argument, value


def test_the_calls_are_right(calls):
    for call, right, _ in calls.values():
        call(**right)


def test_wrong_values(calls):
    faults, count = wrong_values(calls)
    assert count > 2200  # without optional packages, too
    assert not faults, "\n".join([f"{len(faults)} of {count}", *faults])


def wrong_values(calls):
    """The wrong calls that give no error, or one that is not gbdnn's or does not name the argument.

    And the number of all.
    """
    faults, count = [], 0
    for name, call, right, argument, value in wrong(calls):
        count += 1
        shown = f"{name}({argument}={value!r})"
        try:
            call(**{**right, argument: value})
        except gbdnn.GbdnnError as err:
            if argument not in str(err) and not any(x in str(err) for x in SAYS.get(argument, ())):
                faults.append(f"{shown}: does not name it: {err}")
        except Exception as err:
            faults.append(f"{shown}: {type(err).__name__}: {err}")
        else:
            faults.append(f"{shown}: is accepted")
    return faults, count


# What an error may say in place of the argument's name.
SAYS = {
    "layers": ["layer 0"], "infos": ["layer 0"], "x": ["layer 0", "categories", "is saved"],
    "batches": ["batch 0"], "rows": ["categories"], "systems": ["radix"], "widths": ["width is"],
    "lowest_bias": ["bias"], "highest_bias": ["bias"], "dtype": ["GraphBLAS type"],
    "source": ["weight"],
}  # fmt: skip


def test_an_address_is_no_path(tmp_path, monkeypatch):
    """Neither read nor written: a folder ``memory:`` would be made, in this folder."""
    monkeypatch.chdir(tmp_path)
    for call in (gbdnn.load, lambda path: gbdnn.save(X, path)):
        for address in ("s3://bucket/net", Path("gs://bucket/net")):
            with pytest.raises(errors.ArgumentError, match=r"is a URL.*Object stores"):
                call(address)
    assert not list(tmp_path.iterdir())
    gbdnn.save(X, "run:3")  # a name with a colon is a name
    assert gbdnn.load("run:3").nvals == X.size
