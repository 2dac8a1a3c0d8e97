"""Checkpoints of training with other fields and arrays, under a checksum that is right.

Two functions know the container: `checkpoint_parts` and `checkpoint_bytes`.
"""

import json
import math
import pathlib
import tempfile

import fuzz_json as mutate
import fuzz_readers as judge
import numpy as np
from fuzz_cases import MisreadError, judged, made, require_same
from fuzz_networks import damaged_store

EPOCHS = 3
FAULTS = ("FormatError", "DivergenceError", "NonFiniteError")  # weights may be any numbers


def checkpoint_parts(data):
    """The arrays and the fields of a checkpoint of training."""
    from safetensors.numpy import load

    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return load(data), json.loads(head["__metadata__"]["gbdnn"])


def checkpoint_bytes(arrays, fields):
    """A checkpoint of training, with a checksum that is right."""
    import xxhash
    from safetensors.numpy import save

    texts = {"gbdnn": json.dumps(fields), "checksum": "0" * 16}
    data = save({name: np.ascontiguousarray(x) for name, x in arrays.items()}, texts)
    return data.replace(b"0" * 16, xxhash.xxh3_64_hexdigest(data).encode(), 1)


def trainings():
    """Calls of `train`: each with its checkpoint after every epoch, and the run it ends with."""
    import gbdnn

    rng = np.random.default_rng(4)
    X, y = rng.random((40, 6)), rng.integers(0, 3, 40)
    net = gbdnn.training.erdos_renyi([6, 8, 3], density=0.5)
    before = gbdnn.train(net, X, y, epochs=2, optimizer=gbdnn.training.Adam(), batch_size=16)
    calls = [
        (net, X, y, {"optimizer": gbdnn.training.Adam(), "validation": 0.25, "patience": 2}),
        (net, X, y, {"optimizer": gbdnn.training.SGD(momentum=0.9)}),
        (net, X, np.eye(3)[y], {"optimizer": gbdnn.training.SGD(), "validation": 0.25}),
        (before, X, y, {}),
    ]
    found = []
    for start, X, y, options in calls:
        options = {"epochs": EPOCHS, "batch_size": 16, **options}
        with tempfile.TemporaryDirectory() as folder:
            path, saved = pathlib.Path(folder, "run"), []

            def keep(record, path=path, saved=saved):
                if path.exists():
                    saved.append(path.read_bytes())

            gbdnn.train(start, X, y, **options, checkpoint=path, callback=keep)
            found += [((start, X, y, options), data) for data in [*saved, path.read_bytes()]]
    return found


def _other_arrays(arrays, rng):
    """Arrays of which one is missing, twice there, of another type, shape or with other numbers."""
    arrays = dict(arrays)
    name, other = rng.choice(sorted(arrays)), rng.choice(sorted(arrays))
    x, how = arrays[name].copy(), rng.randrange(9)
    if how == 0:
        del arrays[name]
        return arrays
    if how == 1:
        arrays[rng.choice(["0.moment.5", "9.edges", "best.0.edges", "x", name + ".0"])] = x
        return arrays
    if how == 2:
        arrays[name], arrays[other] = arrays[other], x
        return arrays
    if how == 3:
        x = x.astype(rng.choice(["f4", "f8", "i4", "i8", "u8", "f2", "u1"]))
    elif how == 4:
        x = rng.choice([x[:-1], x[::-1], x[None], np.append(x, x[-1:]), x[:0]])
    elif x.size:
        odd = [np.nan, np.inf, -np.inf, -1, 0, 1, 0.5, 1e3, -1e-30, 47, 48, 1000, 2**40]
        with np.errstate(all="ignore"):
            x[rng.randrange(x.size)] = np.array(rng.choice(odd)).astype(x.dtype)
    arrays[name] = x
    return arrays


def case_checkpoint(rng, folder):
    import gbdnn

    (start, X, y, options), data = rng.choice(made("trainings", trainings))
    arrays, fields = checkpoint_parts(data)
    how = rng.randrange(5)
    if how > 1:
        head = {name: fields.pop(name) for name in ("format", "version", "fingerprint")}
        other = mutate.other_json if rng.random() < 0.5 else mutate.other_leaf
        fields = {**other(fields, rng), **head}
    if how < 3:
        arrays = _other_arrays(arrays, rng)
    path = folder / "run"
    path.write_bytes(checkpoint_bytes(arrays, fields))

    def read():
        return gbdnn.train(start, X, y, **options, checkpoint=path, nthreads=1)

    def compare(run, expected):
        layers, history, steps, best = expected
        require_same([list(record) for record in run.history[: len(history)]], history)
        if len(run.history) > len(history):  # training has gone on
            return
        require_same(run.steps, steps)
        if (run.best is None) != (best is None):
            raise MisreadError(f"best is {run.best}, {best} is there")
        if best is not None:
            require_same([run.best.epoch, run.best.validation_loss], best[0])
            _require_states(run.best.layers, best[1])
        _require_states(run.layers, layers)

    with np.errstate(all="ignore"):
        return judged(read, lambda: _judged(arrays, fields), compare, errors=FAULTS)


def runs():
    """Runs, as the files of a store."""
    import gbdnn

    rng = np.random.default_rng(5)
    X, y = rng.random((40, 6)), rng.integers(0, 3, 40)
    found = []
    for dtype, targets, options in (
        ("FP64", y, {"optimizer": gbdnn.training.Adam(), "validation": 0.25, "keep": "best"}),
        ("FP32", y, {"schedule": gbdnn.training.Stepwise((0.5,))}),
        ("FP64", np.eye(3)[y], {"epochs": 0}),
    ):
        net = gbdnn.training.erdos_renyi([6, 8, 3], density=0.5, dtype=dtype)
        run = gbdnn.train(net, X, targets, **{"epochs": EPOCHS, "batch_size": 16, **options})
        with tempfile.TemporaryDirectory() as folder:
            gbdnn.save(run, folder)
            found.append({path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()})
    return found


def case_run(rng, folder):
    """A run in a store: what is refused names the store."""
    import gbdnn

    path = folder / "store"
    index, files, how = damaged_store(rng.choice(made("runs", runs)), rng, path)
    verify = how < 3 or rng.random() < 0.5

    def read():
        try:
            return gbdnn.load(path, verify=verify)
        except gbdnn.GbdnnError as err:
            if str(path) not in str(err):
                raise MisreadError(f"{err} does not name the file") from err
            raise

    def expected():
        judge.require(index["kind"] == "training")
        held = judge.tensors(files[index["state"]["shard"]])
        names = {name: each["name"] for name, each in index["state"]["tensors"].items()}
        arrays = {name: held[names[name]] for name in index["arrays"]}
        for name, (dtype, length) in index["arrays"].items():
            judge.require(arrays[name].dtype == np.dtype(dtype) and len(arrays[name]) == length)
        head = dict.fromkeys(("format", "version", "fingerprint"))
        return _judged(arrays, {**index["run"], **head})

    def compare(run, expected):
        layers, history, steps, best = expected
        require_same([list(record) for record in run.history], history)
        require_same([run.steps, index["steps"]], [steps, steps])
        require_same([run.batch_size, run.seed], [index["batch_size"], index["seed"]])
        for name in ("loss", "optimizer", "schedule"):
            got = getattr(run, name)
            told = got and {"kind": type(got).__name__, "options": vars(got)}
            require_same(json.dumps(told), json.dumps(index[name]))
        _require_states(run.layers, layers)
        if best is not None:
            require_same([run.best.epoch, run.best.validation_loss], best[0])
            _require_states(run.best.layers, best[1])

    with np.errstate(all="ignore"):
        return judged(read, expected, compare, errors=("FormatError", "MissingFileError"))


def _require_states(layers, expected):
    require_same(len(layers), len(expected))
    for state, (info, arrays) in zip(layers, expected, strict=True):
        require_same(
            [list(state.info.shape), state.info.activation, state.info.clip, state.info.dtype.name],
            [info["shape"], info["activation"], info["clip"], info["dtype"]],
        )
        got = [state.edges, state.weights, state.bias, *state.moments, *state.bias_moments]
        require_same(len(got), len(arrays))
        for mine, its in zip(got, arrays, strict=True):
            if mine.dtype != its.dtype or not np.array_equal(mine, its, equal_nan=True):
                raise MisreadError(f"{mine!r} is read, {its!r} is there")


def _judged(arrays, fields):
    """What a checkpoint holds, each field of which has its type and range."""
    require, used = judge.require, set()

    def is_int(x, low=0, high=2**60):
        return type(x) is int and low <= x <= high

    def is_number(x):
        return type(x) in (int, float) and math.isfinite(x)

    def layers(infos, prefix):
        require(type(infos) is list)
        found = []
        for k, info in enumerate(infos):
            wanted = {"shape", "edges", "gain", "dtype", "activation", "clip"}
            require(type(info) is dict and set(info) == wanted)
            shape, dtype = info["shape"], np.dtype(info["dtype"])
            require(type(shape) is list and len(shape) == 2 and all(map(is_int, shape)))
            require(info["dtype"] in ("float32", "float64") and is_int(info["edges"]))
            require(is_number(info["gain"]) and info["gain"] >= 0)
            require(info["activation"] in ("relu", "identity"))
            require(info["clip"] is None or (is_number(info["clip"]) and info["clip"] > 0))
            if found:
                require(found[-1][0]["shape"][1] == shape[0])
            moments = sum(name.startswith(f"{prefix}{k}.moment.") for name in arrays)
            of_edges = ["weights", *(f"moment.{n}" for n in range(moments))]
            of_bias = ["bias", *(f"bias_moment.{n}" for n in range(moments))]
            names = ["edges", "weights", "bias", *of_edges[1:], *of_bias[1:]]
            held = {name: arrays[f"{prefix}{k}.{name}"] for name in names}
            used.update(f"{prefix}{k}.{name}" for name in names)
            edges = held["edges"]
            require(edges.dtype == np.int64 and edges.ndim == 1 and (np.diff(edges) > 0).all())
            require(not edges.size or (edges[0] >= 0 and edges[-1] < shape[0] * shape[1]))
            for name in (*of_edges, *of_bias):
                size = len(edges) if name in of_edges else shape[1]
                require(held[name].dtype == dtype and held[name].shape == (size,))
                require(not np.isnan(held[name]).any())
            require(np.isfinite(held["weights"]).all() and np.isfinite(held["bias"]).all())
            found.append((info, [held[name] for name in names]))
        return found

    wanted = {"layers", "history", "steps", "stopped", "format", "version", "fingerprint"}
    require(set(fields) - {"best", "best_layers"} == wanted)
    require(is_int(fields["steps"]) and type(fields["stopped"]) is bool)
    for k, record in enumerate(fields["history"]):
        require(type(record) is list and len(record) == 8)
        epoch, loss, accuracy, _, seen, rate, edges, seconds = record
        require(is_int(epoch) and epoch == k and is_int(edges))
        require(all(type(x) is float and math.isfinite(x) for x in (loss, rate, seconds)))
        require(all(x is None or type(x) is float for x in record[2:5]))
        require(all(x is None or 0 <= x <= 1 for x in (accuracy, seen)))
    found, best = layers(fields["layers"], ""), None
    if "best" in fields:
        epoch, loss = fields["best"]
        require(is_int(epoch, 0, len(fields["history"]) - 1) and type(loss) is float)
        require(fields["history"][epoch][3] == loss)
        best = fields["best"], layers(fields["best_layers"], "best.")
    require(used == set(arrays))
    return found, fields["history"], fields["steps"], best
