"""What runs leave behind, with other fields under a checksum that is right: records of conversions
and of answers, the state of streamed runs.
"""

import contextlib
import json
import pathlib
import tempfile
from unittest import mock

import fuzz_json as mutate
import fuzz_mutations
import fuzz_readers as judge
import numpy as np
from fuzz_cases import MisreadError, a_network, judged, layers_of, made, require_layers
from fuzz_networks import sealed, signed

# Records of conversions and of answers


def tree_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in pathlib.Path(folder).rglob("*")
        if path.is_file()
    }


def write_tree(files, folder):
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def signed_record(fields, head):
    """The bytes of a run's record, with a checksum that is right."""
    import xxhash

    text = json.dumps(fields).encode()
    first = {**head, "checksum": xxhash.xxh3_64_hexdigest(text)}
    return json.dumps(first).encode() + b"\n" + text + b"\n"


def _convert(folder, stop=None):
    """What `gbdnn convert` does, with a layer in each shard, interrupted before layer `stop`."""
    from gbdnn.io.store import resumed, unfinished, writer

    def layers(start):
        for k, layer in enumerate(made("network", a_network)):
            if k == stop:
                raise KeyboardInterrupt
            if k >= start:
                yield layer

    origin = unfinished.Origin.of({"files": "0" * 16}, {"files": "net/*.tsv"})
    source = resumed.LayerSource(origin=origin, count=3, layers=layers, mark=lambda k: f"mark {k}")
    with mock.patch.object(writer, "SHARD_BYTES", 1):
        resumed.save_layers(source, folder)


def _features():
    """Some features; two rows are equal."""
    import scipy.sparse as sp

    rng = np.random.default_rng(2)
    X = np.where(rng.random((12, 48)) < 0.4, rng.random((12, 48)), 0)
    X[5] = X[2]
    return sp.csr_array(X)


def _deep_network():
    """A network of which two layers fit into the memory of `_STREAMED`; most inputs live."""
    import gbdnn

    rng = np.random.default_rng(0)
    return gbdnn.Network(
        [
            gbdnn.Layer(
                np.where(rng.random((48, 48)) < 0.3, rng.normal(0, 0.5, (48, 48)), 0),
                -0.05,
                clip=2.0,
            )
            for _ in range(10)
        ]
    )


_BATCHES = {"engine": "full", "batch": 3}
_STREAMED = {"engine": "full", "memory": 150_000, "compress": True}


def _answer(folder, options, stop=None):
    """What `infer_to_store` does, interrupted when `stop` inputs are done, or layers are read."""
    import gbdnn

    net = whole = made("deep", _deep_network)
    reads = 0

    def read(k):
        nonlocal reads
        reads += 1
        if reads == stop:
            raise KeyboardInterrupt
        return whole[k]

    def progress(done, inputs):
        if done == stop:
            raise KeyboardInterrupt

    if options is _STREAMED:
        net, progress = gbdnn.Network.lazy(net.infos, read), None
    elif stop is None:
        options = {"engine": "full"}
    X = made("features", _features)
    gbdnn.infer_to_store(net, X, folder, **options, progress=progress)


def _left(work, *arguments):
    """What a run leaves that is interrupted."""
    from gbdnn.distributed.executors import checkpoint

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(checkpoint, "_WORTH", 0):
        with contextlib.suppress(KeyboardInterrupt):
            work(pathlib.Path(folder), *arguments)
        return tree_of(folder)


def _case_record(rng, folder, work, arguments, expected):
    """A run that goes on from a record that somebody else wrote ends where it would have ended."""
    import gbdnn

    files = dict(made(f"{work.__name__} {arguments}", lambda: _left(work, *arguments)))
    (name,) = (each for each in files if each.endswith("run.json"))
    head, fields = map(json.loads, files[name].splitlines())
    how = rng.randrange(8)
    if how:
        fixed = {each: fields.pop(each) for each in ("fingerprints", "words")}
        leaves = mutate.NUMBERS if how < 5 else (str,)
        fields = (
            mutate.other_json(fields, rng) if how < 3 else mutate.other_leaf(fields, rng, leaves)
        )
        fields = {**fixed, **fields} if how < 7 else mutate.other_json({**fixed, **fields}, rng)
        files[name] = signed_record(fields, head)
    else:
        files[name] = fuzz_mutations.damaged(files[name], rng, fuzz_mutations.TEXT)
        fields = None
    write_tree(files, folder)

    def read():
        found = gbdnn.io.find_unfinished(folder)
        if found is not None:
            numbers = [found.done, found.total, found.parts_done, found.parts, found.nbytes]
            judge.require(all(type(n) is int and n >= 0 for n in numbers))
            judge.require(found.done <= found.total and found.parts_done <= found.parts)
            str(found.origin.words)
        work(folder, *arguments[:-1])
        return gbdnn.load(folder)

    return judged(read, lambda: fields, lambda got, right: expected(got, right, files),
                  errors=("FormatError", "OutputError"))  # fmt: skip


def case_conversion(rng, folder):
    def compare(net, fields, files):
        got, whole = layers_of(net), layers_of(made("network", a_network))
        try:
            require_layers(got, whole)
        except MisreadError:
            # The record is all that tells a layer's bias, clip and activation.
            shards = {pathlib.Path(name).name: data for name, data in files.items()}
            kept = judge.store({"kind": "network", **fields}, shards)
            require_layers(got, [*kept, *whole[len(kept) :]])

    return _case_record(rng, folder, _convert, (2,), compare)


def case_parts(rng, folder):
    def compare(Y, fields, files):
        del fields, files
        require = made("answer", _whole_answer)
        if not np.array_equal(Y.to_dense(fill_value=0), require):
            raise MisreadError("another answer")

    return _case_record(rng, folder, _answer, (_BATCHES, 6), compare)


def _whole_answer():
    import gbdnn

    net, X = made("deep", _deep_network), made("features", _features)
    return gbdnn.infer(net, X, engine="full").to_dense(fill_value=0)


# Where a streamed run stands


def case_streamed(rng, folder):
    """The rows that a checkpoint holds go on from there, whatever it says; or it is not taken."""
    import gbdnn

    files = dict(rng.choice(made("streamed", _streamed)))
    (name,) = (each for each in files if each.endswith(".run/index.json"))
    at = name.removesuffix("index.json")
    index, how = json.loads(files[name]), rng.randrange(8)
    if how:
        head = {each: index.pop(each) for each in ("format", "version", "checksum", "kind")}
        if how < 4:
            index = (mutate.other_json if how == 1 else mutate.other_leaf)(index, rng)
        index = {**head, **index}
        if how > 3:
            shard = rng.choice([x for x in files if x.startswith(at) and x != name])
            files[shard] = mutate.other_safetensors(files[shard], rng)
            with contextlib.suppress(Exception):  # an index with another fault
                index = sealed(index, {x.removeprefix(at): data for x, data in files.items()})
        files[name] = signed(index)
    else:
        shard = rng.choice([x for x in files if x.startswith(at)])
        files[shard] = fuzz_mutations.damaged(files[shard], rng, fuzz_mutations.BINARY)
    write_tree(files, folder)

    def read():
        judge.require(gbdnn.io.find_unfinished(folder) is None or True)
        _answer(folder, _STREAMED)
        return gbdnn.load(folder).to_dense(fill_value=0)

    def compare(got, _):
        if np.allclose(got, made("answer", _whole_answer), rtol=1e-9, atol=1e-12):
            return
        shards = {x.removeprefix(at): data for x, data in files.items() if x.startswith(at)}
        if not np.allclose(got, _gone_on(index, shards), rtol=1e-9, atol=1e-12):
            raise MisreadError("another answer")

    return judged(read, lambda: None, compare)


def _streamed():
    """What streamed runs leave: rows that wait at one layer, and one with rows at every stage."""
    import scipy.sparse as sp

    from gbdnn.arrays.sparse_rows import SparseRows
    from gbdnn.distributed.executors import checkpoint
    from gbdnn.engine.queues import SavedState

    found = [_left(_answer, _STREAMED, stop) for stop in (15, 19)]
    layers, Y = layers_of(made("deep", _deep_network)), made("features", _features).toarray()
    at = []
    for W, b, _, clip, _ in layers:
        at.append(Y)
        Y = np.minimum(np.maximum(Y @ W + b, 0), clip)

    def rows(dense, *ids):
        A = sp.csr_array(dense[list(ids)])
        places = (x.astype(np.uint64) for x in (A.indptr, A.indices))
        return SparseRows(*places, A.data, 48, np.array(ids))

    parents = np.arange(12)
    parents[5] = 2
    state = SavedState(
        [(0, range(2)), (0, range(10, 12)), (4, rows(at[4], 2, 3)), (7, rows(at[7], 4, 6))],
        [rows(Y, 9, 7), rows(Y, 8)],
        (parents, np.bincount(parents, minlength=12)),
    )
    files = found[0]
    (name,) = (each for each in files if each.endswith(".run/index.json"))
    with tempfile.TemporaryDirectory() as folder:
        write_tree(files, pathlib.Path(folder))
        checkpoint._write(pathlib.Path(folder, name).parent, 4, state)
        return [*found, tree_of(folder)]


def _gone_on(index, shards):
    """The answer of the rows that a checkpoint holds."""
    layers, X = layers_of(made("deep", _deep_network)), made("features", _features).toarray()
    Y, seen = np.zeros((len(X), 48)), set()

    def put(k, ids, rows):
        judge.require(type(k) is int and 0 <= k <= len(layers) and rows.shape[1] == 48)
        for W, b, _, clip, _ in layers[k:]:
            rows = np.minimum(np.maximum(rows @ W + b, 0), clip)
        for i, row in zip(ids, rows, strict=True):
            judge.require(0 <= i < len(X) and i not in seen)
            seen.add(i)
            Y[i] = row

    for k, start, stop in index["unread"]:
        judge.require(type(start) is int and type(stop) is int and 0 <= start <= stop <= len(X))
        put(k, range(start, stop), X[start:stop])
    for k, entry in [
        *((each["layer"], each) for each in index["queued"]),
        *((len(layers), each) for each in index["finished"]),
    ]:
        rows, array, kind = judge.matrix(entry, shards)
        judge.require(kind == "float64" and array["ids"].dtype == np.int64)
        put(k, array["ids"].tolist(), rows)
    followed = index["followed"]
    held = judge.tensors(shards[followed["shard"]])
    parents = held[followed["tensors"]["parents"]["name"]]
    judge.require(parents.dtype == np.int64 and parents.shape == (len(X),))
    judge.require(((parents >= 0) & (parents < len(X))).all())
    for _ in range(len(X)):
        parents = parents[parents]
    return Y[parents]
