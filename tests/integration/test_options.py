"""No option is accepted and ignored: each one changes what is observed of a call, or raises.

A table has a call of each public function, and another value of each of its options. A new
option without an entry fails.
"""

import importlib
import inspect
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest

import gbdnn
from gbdnn import challenge, errors, gallery, graph, io, sklearn, training
from gbdnn.io.networks import FORMATS

for _package in ("sklearn", "safetensors", "polars", "onnx"):
    pytest.importorskip(_package)
sp = pytest.importorskip("scipy.sparse")

MODULES = [
    "gbdnn", "gbdnn.io", "gbdnn.gallery", "gbdnn.graph", "gbdnn.challenge",
    "gbdnn.distributed", "gbdnn.sklearn", "gbdnn.training",
]  # fmt: skip
ELSEWHERE = {
    "Outcome": "a record", "Problem": "a record", "BatchStats": "a record",
    "LayerInfo": "a record", "TrainingRun": "a record",
    "CompiledNetwork": "a record", "TrainableLayer": "made by train",
    "challenge.load": "needs the challenge's files: tests/challenge",
    "generate": "takes long: tests/challenge", "scaling": "tests/test_thread_scaling.py",
    "pipeline": "needs ranks of MPI", "plan": "has the options of infer: tests/engine/test_plan.py",
    "Workers": "changes batches: tests/distributed", "from_geometric": "tests/graph",
    "from_torch": "tests/io", "to_torch": "tests/io", "balance": "tests/distributed",
}  # fmt: skip
# Options of many functions: writers replace only with `replace` (tests/io/test_replace.py), and the
# others change how or whether something is computed; wrong values of them raise
# (test_wrong_calls.py).
IN_GENERAL = {
    "deduplicate", "engine", "executor", "logits", "memory", "n_jobs", "nthreads", "replace",
    "verify",
}  # fmt: skip

RANDOM = np.random.default_rng(0)
W0, W1 = RANDOM.normal(size=(2, 6, 6)).astype(np.float32)
X = RANDOM.random((40, 6)).astype(np.float32) * (RANDOM.random((40, 6)) < 0.5)
X[:4] = X[4:8]
Y = np.arange(40) % 6
G = np.triu(RANDOM.random((40, 40)) < 0.1).astype(np.float32) * RANDOM.random((40, 40))
NET = gbdnn.Network([gbdnn.Layer(W0, -0.1), gbdnn.Layer(W1, 0.3, activation="identity")])


def seen(x):
    """What is observed of a result, without times: texts, numbers and lists of them."""
    if isinstance(x, gb.Matrix):
        return [str(x.dtype), x.shape, *(each.tolist() for each in x.to_coo())]
    if isinstance(x, np.ndarray):
        return [str(x.dtype), x.shape, repr(x.tolist())]
    if isinstance(x, gbdnn.Layer):
        return [seen(x.W), str(x.bias), x.bias_rule, x.activation, x.clip]
    if isinstance(x, graph.Convolution):
        return [seen(x.layer), x.self_weights and seen(x.self_weights), x.gathers]
    if isinstance(x, training.TrainingRun):
        history = [record[:-1] for record in x.history]
        return [seen(x.network), history, len(x.layers[0].edges), x.batch_size, x.seed]
    if hasattr(x, "sparse_rows"):  # stored features
        return seen(x.sparse_rows(0, x.nrows).matrix())
    if isinstance(x, gbdnn.Network | list | tuple):
        return [*map(seen, x), getattr(x, "loaded", lambda: x)() is x]
    return x


def made(call, *given):
    """A call without its options."""
    return lambda **options: seen(call(*given, **options))


def recorded(call):
    """What a call returns, and how many records it passes to the callback of the table."""

    def found(**options):
        records = []
        return [call(**{"callback": records.append} | options), len(records)]

    return found


def store(tmp, name, what):
    path = Path(tmp) / name
    if not path.exists():
        gbdnn.save(what, path)
    return path


def watching(call):
    """A call whose option `progress` or `callback`, if it is WATCH, is observed by being called."""

    def found(tmp, **options):
        calls = []
        for name in ("progress", "callback"):
            if options.get(name) is WATCH:
                options[name] = lambda *args: calls.append(args)
        return [call(tmp, **options), len(calls) > 0]

    return found


WATCH = object()


def new(tmp):
    """A path of a file or folder that does not exist."""
    return tmp / f"new{len(list(tmp.iterdir()))}"


def convert(tmp, **options):
    io.convert(store(tmp, "net", NET), target := new(tmp), **options)
    return seen(gbdnn.load(target))


def categories(tmp, text="1\n3\n", **options):
    (tmp / "categories.tsv").write_text(text)
    return seen(io.read_categories(tmp / "categories.tsv", **options))


def read_features(tmp, **options):
    (tmp / "X.tsv").write_text("1\t1\t0.1\n2\t3\t2\n")
    return seen(io.read_features(tmp / "X.tsv", **options))


def to_store(tmp, **options):
    found = gbdnn.infer_to_store([W0, W1], X, new(tmp), **{"batch_size": 10} | options)
    return [len(found._parts), seen(found)]


def saved(tmp, **options):
    """The kind of a file or folder; a network that tsv does not store."""
    net = gbdnn.Network([gbdnn.Layer(np.eye(1024), -0.1, clip=2.0)])
    gbdnn.save(net, path := new(tmp), **options)
    return sorted(each.name[:2] for each in path.iterdir()) if path.is_dir() else "file"


def written(writer, what):
    def call(tmp, **options):
        name = "y.txt" if writer is io.write_labels else "y"
        writer(what, tmp / name, **{"format": "tsv"} | options if name == "y.txt" else options)
        return (tmp / name).is_dir() or (tmp / name).read_bytes()

    return call


def write_features(tmp, **options):
    io.write_features([X], path := new(tmp), **options)
    return seen(io.open_features(path))


def train(**options):
    net = training.erdos_renyi([6, 8, 6], 0.4)
    options = {"epochs": 2, "batch_size": 10} | options
    return seen(gbdnn.train(net, X, options.pop("y", Y), **options))


def stop(record):
    raise StopIteration


def checkpointed(tmp, **options):
    if options.get("checkpoint") is WATCH:
        options["checkpoint"] = tmp / "run"
    return [train(**options), sorted(each.name for each in tmp.glob("run*"))]


def estimator(kind):
    def call(**options):
        if options.pop("warm", False):
            model = kind((8,), epochs=1, random_state=0, warm_start=True).fit(X, Y)
            return seen(model.set_params(**options).fit(X, Y).run_)
        given = {"hidden_layer_sizes": (8, 5), "density": 0.4, "epochs": 2, "random_state": 0}
        return seen(kind(**given | options).fit(X, Y).run_)

    return call


def rule(make, **fixed):
    def call(**options):
        return train(epochs=6, adjustments=make(**{**fixed, **options}))

    return call


def training_with(what, kind):
    return lambda **options: train(**{what: kind(**options)})


PROBLEM = challenge.generate(1024, 3, inputs=20)


def run(tmp, **options):
    found = challenge.run(PROBLEM, **{"repeat": 1, "engine": "graphblas"} | options)
    return [len(found.seconds), found.check_seconds is None]


def stats():
    found = []
    gbdnn.infer(NET, X, callback=found.append)
    return found


ARRAYS = {
    "bias": -0.2, "bias_rule": {"bias_rule": "entries", "bias": 0.3}, "clip": 0.5, "dtype": "FP64",
    "last_activation": "identity",
}  # fmt: skip
ADAM = {
    "learning_rate": 0.1, "beta1": 0.5, "beta2": 0.5, "epsilon": 1.0, "weight_decay": 0.5,
    "clip_norm": 1e-3,
}  # fmt: skip
FITTING = {
    "hidden_layer_sizes": (9,), "density": 0.5, "distribution": "uniform", "epochs": 3,
    "batch_size": 7, "optimizer": "sgd", "learning_rate": 0.1, "weight_decay": 0.9,
    "schedule": training.Constant(), "rewire": training.SET(every=1), "input_dropout": 0.5,
    "validation_fraction": 0.5, "patience": 1, "warm_start": {"warm_start": False, "warm": True},
    "callback": stop, "random_state": 1, "dtype": "FP64",
}  # fmt: skip

# Of networks that are read; most of them do not apply to a store.
OF_SOURCES = {
    "layers": 1, "dtype": "FP64", "neurons": 1000, "prefix": "other", "bias": -0.5,
    "bias_rule": "entries", "activation": "relu", "clip": 0.5, "last_activation": "identity",
    "format": "tsv",
}  # fmt: skip

# By function: a call, and for each option another value, or a dict of several options: these and
# the call without the first of them are compared.
TABLE = {
    "Layer": (
        lambda copy=True, **options: [seen(gbdnn.Layer(W0, copy=copy, **options)), _owned(copy)],
        {"bias": 1.0, "bias_rule": "entries", "activation": "identity", "clip": 1.0,
         "dtype": "FP64", "copy": False},
    ),
    "Network": (made(gbdnn.Network, [W0, W1]), ARRAYS),
    "compile": (lambda **options: seen(gbdnn.compile([W0, W1], **options)(X)), ARRAYS),
    "infer": (recorded(made(gbdnn.infer, [W0, W1], X)), ARRAYS | {"callback": None}),
    "infer_batches": (
        recorded(lambda **options: seen([*gbdnn.infer_batches([W0, W1], [X], **options)])),
        ARRAYS | {"callback": None},
    ),
    "infer_to_store": (
        watching(to_store), ARRAYS | {"batch_size": 20, "progress": WATCH, "callback": WATCH},
    ),
    "load": (
        watching(lambda tmp, **options: seen(gbdnn.load(store(tmp, "net", NET), **options))),
        OF_SOURCES | {"lazy": True, "progress": WATCH},
    ),
    "radixnet": (made(gallery.radixnet, 1024, 8), {"seed": 1, "dtype": "FP64", "lazy": True}),
    "save": (
        watching(saved),
        {"format": "onnx", "progress": WATCH, "lossy": {"lossy": True, "format": "tsv"}},
    ),
    "train": (
        checkpointed,
        {"sample_weight": np.arange(40), "epochs": 3, "batch_size": 7, "optimizer": "sgd",
         "loss": {"loss": "squared_error", "y": np.eye(6)[Y].astype(int)},
         "schedule": training.Constant(), "adjustments": training.SET(every=1),
         "input_dropout": 0.5, "validation": 0.5, "patience": {"patience": 1, "validation": 0.5,
         "optimizer": training.SGD(1e-30), "epochs": 5}, "seed": 1,
         "callback": stop, "checkpoint": WATCH},
    ),
    "argmax": (lambda **options: seen(gbdnn.argmax(X * (Y > 2)[:, None], **options)), {"dead": -1}),
    "per_layer": (lambda **options: len(gbdnn.per_layer(stats(), **options)), {"layers": 5}),
    "convert": (
        watching(convert),
        {"to": "matrix-market", "lossy": {"lossy": "x"}, "progress": WATCH} | OF_SOURCES,
    ),
    "read_categories": (
        categories, {"inputs": 2, "allow_empty": {"allow_empty": True, "text": ""}},
    ),
    "read_features": (read_features, {"nrows": 5, "ncols": 7, "dtype": "FP64"}),
    "write_features": (
        watching(write_features), {"format": "npy", "dtype": "FP64", "progress": WATCH},
    ),
    "write_categories": (written(io.write_categories, [1, 3]), {"format": "tsv"}),
    "write_labels": (written(io.write_labels, [1, 3]), {"format": "npy"}),
    "features_from_images": (
        lambda **options: seen(gallery.features_from_images(
            np.arange(2 * 20 * 30).reshape(2, 20, 30) % 256, **options)),
        {"neurons": 4096, "inputs": 3, "threshold": 200.0, "order": "C", "dtype": "FP64"},
    ),
    "radix_layers": (
        made(gallery.radix_layers, [[2, 2]]), {"widths": [1, 2, 1], "weight": 2.0, "dtype": "FP64"},
    ),
    "Convolution": (
        lambda **options: seen(graph.Convolution(**{"weights": W0} | options)),
        {"weights": W1, "bias": 1.0, "self_weights": W1, "activation": "identity", "clip": 1.0,
         "dtype": "FP64"},
    ),
    "graph.infer": (
        recorded(lambda **options: seen(graph.infer([W0], X, G, **options))),
        {"nodes": [3], "aggregate": "max", "dtype": "FP64", "callback": None},
    ),
    "normalized": (
        lambda **options: seen(graph.normalized(_networkx(), **options)),
        {"kind": "mean", "self_loops": False, "weight": None, "dtype": "FP32"},
    ),
    "propagate": (
        made(graph.propagate, G, X),
        {"hops": 2, "all_hops": True, "aggregate": "max", "dtype": "FP32"},
    ),
    "run": (watching(run), {"repeat": 2, "check": False, "progress": WATCH}),
    "SET": (rule(training.SET), {"fraction": 0.9, "every": 1}),
    "RigL": (rule(training.RigL, every=1), {"fraction": 0.9, "every": 3, "until": 0.3}),
    "GroupLasso": (rule(training.GroupLasso, strength=0.5), {"every": 1, "negligible": 0.5}),
    "MagnitudePruning": (
        rule(training.MagnitudePruning, density=0.3, every=1),
        {"begin": 0.5, "end": 1.0, "every": 3, "scope": "layer"},
    ),
    "SGD": (
        training_with("optimizer", training.SGD),
        {"learning_rate": 0.01, "momentum": 0.5, "nesterov": True, "weight_decay": 0.1,
         "clip_norm": 1e-3},
    ),
    "Adam": (training_with("optimizer", training.Adam), ADAM),
    "Cosine": (training_with("schedule", training.Cosine), {"final": 0.5, "warmup": 0.5}),
    "Stepwise": (training_with("schedule", training.Stepwise), {"at": (0.1,), "factor": 0.5}),
    "SparseClassifier": (estimator(sklearn.SparseClassifier), FITTING | {"class_weight": {0: 5.0}}),
    "SparseRegressor": (estimator(sklearn.SparseRegressor), FITTING),
    "compact": (
        lambda **options: seen(training.compact(
            [np.vstack([W0, 0 * W0[:1]]), W1], **options).network),
        {"inputs": True},
    ),
    "erdos_renyi": (
        made(training.erdos_renyi, [60, 30, 10], 0.2),
        {"distribution": "uniform", "seed": 1, "dtype": "FP64"},
    ),
    "initialized": (made(training.initialized, NET), {"seed": 1}),
    "with_ends": (
        lambda **options: seen(training.with_ends(NET, 20, 10, **{"degree": 3} | options)),
        {"degree": 2, "seed": 1},
    ),
}  # fmt: skip


# An option may apply to some kinds of files, or be read by some methods of an object, only: it is
# tried with each of them. By function and kind: a call that gets a new file, and the options.
FILES = {
    "npy": lambda path: np.save(path, X), "npz": lambda path: np.savez(path, X),
    "sparse npz": lambda path: sp.save_npz(path, sp.csr_array(X)),
    "mtx": lambda path: gbdnn.save(gbdnn.Network([W0]), path, "matrix-market", lossy=True),
    "tsv": lambda path: io.write_features(gb.Matrix.from_dense(X), path),
    "IDX of bytes": lambda path: path.write_bytes(b"\0\0\x08\2\0\0\0\1\0\0\0\6" + b"123456"),
    "IDX": lambda path: path.write_bytes(b"\0\0\x0d\2\0\0\0\1\0\0\0\1" + b"\x3f\x80\0\0"),
    "store": lambda path: gbdnn.io.write_features(X, path),
}  # fmt: skip
OF_FEATURES = {"dtype": "FP64", "nrows": 7, "ncols": 7}
NETWORKS = {
    "store": lambda path: gbdnn.save(NET, path),
    "tsv": lambda path: gbdnn.save(gbdnn.gallery.radixnet(1024, 2), path, "tsv"),
    "matrix-market": lambda path: gbdnn.save(NET, path, "matrix-market", lossy=True),
    "onnx": lambda path: gbdnn.save(NET, path, "onnx"),
    "torch": lambda path: gbdnn.save(NET, path, "torch", lossy=True),
}
OF_NETWORKS = OF_SOURCES | {"logits": True, "format": "store", "lazy": True, "progress": WATCH}
OTHERWISE = {"torch": {"activation": "identity", "last_activation": "relu"},
             "tsv": {"bias_rule": "all"}}  # fmt: skip
# What makes no difference to these files, or to an answer.
NEVER_SEEN = {
    ("load", "store", "format"), ("load", "onnx", "logits"),
    ("partial_fit", "SparseClassifier", "callback"), ("partial_fit", "SparseRegressor", "callback"),
}  # fmt: skip
# As the class says: of `fit` alone.
OF_FIT = {"epochs", "warm_start"}


def _read_features(kind):
    def call(tmp, **options):
        name = {"npy": "x.npy", "npz": "x.npz", "sparse npz": "x.npz", "tsv": "x.tsv"}.get(kind)
        path = tmp / (name or ("x" if kind in ("store", "mtx") else "x-idx"))
        if not path.exists():
            FILES[kind](path)
        return seen(io.read_features(path / "n6-l1.mtx" if kind == "mtx" else path, **options))

    return call


def _load(kind):
    def call(tmp, **options):
        path = tmp / ({"onnx": "net.onnx", "torch": "net.pt"}.get(kind, "net"))
        if not path.exists():
            NETWORKS[kind](path)
        given = {"activation": "relu"} if kind == "torch" else {}
        return seen(gbdnn.load(path, **given | options))

    return call


def _partial_fit(kind):
    def call(**options):
        given = {"hidden_layer_sizes": (8, 5), "density": 0.4, "random_state": 0} | options
        classes = {"classes": np.arange(6)} if kind is sklearn.SparseClassifier else {}
        return seen(kind(**given).partial_fit(X, Y, **classes).partial_fit(X, Y).run_)

    return call


KINDS = {
    **{("read_features", kind): (_read_features(kind), OF_FEATURES) for kind in FILES},
    **{
        ("load", kind): (watching(_load(kind)), OF_NETWORKS | OTHERWISE.get(kind, {}))
        for kind in NETWORKS
    },
    **{
        ("partial_fit", kind): (
            _partial_fit(getattr(sklearn, kind)),
            {k: x for k, x in TABLE[kind][1].items() if k not in OF_FIT}
            | {"schedule": training.Stepwise((0.5,), 0.1)},
        )
        for kind in ("SparseClassifier", "SparseRegressor")
    },
}


def _owned(copy):
    """Whether a matrix is still the caller's after it has become a layer."""
    W = gb.Matrix.from_dense(W0)
    gbdnn.Layer(W, copy=copy)
    try:
        return W.nvals > 0
    except gb.exceptions.GraphblasException:
        return False


def _networkx():
    networkx = pytest.importorskip("networkx")
    return networkx.from_numpy_array(G, create_using=networkx.DiGraph)


def public():
    """Every public function or class with options, by name, and the options."""
    for name in MODULES:
        module = importlib.import_module(name)
        for each in module.__all__:
            thing = getattr(module, each)
            if not callable(thing) or (isinstance(thing, type) and issubclass(thing, Exception)):
                continue
            parameters = inspect.signature(thing).parameters.values()
            options = {p.name for p in parameters if p.default is not p.empty} - IN_GENERAL
            is_clear = (name, each) not in {("gbdnn.graph", "infer"), ("gbdnn.challenge", "load")}
            called = each if is_clear else f"{name.removeprefix('gbdnn.')}.{each}"
            if options and called not in ELSEWHERE:
                yield called, options


def test_every_option_has_an_entry():
    assert {name: set(others) for name, (_, others) in TABLE.items()} == dict(public())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name, entry in TABLE.items() for option in entry[1]]
)
def test_an_option_changes_what_is_observed_or_raises(name, option, tmp_path):
    require_seen(*TABLE[name], option, tmp_path)


def test_every_kind_of_file_has_an_entry():
    assert set(NETWORKS) == set(FORMATS)
    given = {name for form in FORMATS.values() for name in form.options.split()}
    given |= {"layers", "dtype", "format", *inspect.signature(gbdnn.load).parameters}
    assert set(OF_NETWORKS) | IN_GENERAL >= given - {"path", "options"}
    known = {"path", *IN_GENERAL}
    assert set(OF_FEATURES) == set(inspect.signature(io.read_features).parameters) - known


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "kind", "option"),
    [(*key, option) for key, entry in KINDS.items() for option in entry[1]],
)
def test_an_option_is_seen_with_every_kind_of_file_or_method(name, kind, option, tmp_path):
    if kind == "torch":
        pytest.importorskip("torch")
    if (name, kind, option) not in NEVER_SEEN:
        require_seen(*KINDS[name, kind], option, tmp_path)


def require_seen(call, others, option, tmp_path):
    """Another value of an option changes what is observed, or raises."""
    value = others[option]
    given = value if isinstance(value, dict) and option in value else {option: value}
    base = {each: x for each, x in given.items() if each != option}
    if "tmp" in inspect.signature(call).parameters:
        given, base = given | {"tmp": tmp_path}, base | {"tmp": tmp_path}
    try:
        expected = call(**base)
    except errors.GbdnnError as err:
        expected = err
    try:
        found = call(**given)
    except errors.GbdnnError:
        assert not isinstance(expected, errors.GbdnnError)
        return
    assert repr(found) != repr(expected)
