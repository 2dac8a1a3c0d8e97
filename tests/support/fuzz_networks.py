"""Damaged stores, and damaged files of PyTorch."""

import contextlib
import io
import json
import pathlib
import tempfile

import fuzz_json
import fuzz_mutations as mutate
import fuzz_pickle
import fuzz_readers as judge
import numpy as np
from fuzz_cases import (
    WRONG_NETWORK,
    a_network,
    judged,
    layers_of,
    made,
    require_equal,
    require_layers,
    some_matrix,
)


def stores():
    from unittest import mock

    import graphblas as gb

    import gbdnn
    from gbdnn.io.store import features

    rng = np.random.default_rng(9)
    found = []
    iso = gb.Matrix.from_coo([0, 1, 3], [0, 1, 3], 0.5, nrows=4, ncols=4)
    for x in (
        a_network("FP32"),
        a_network(),
        gbdnn.Network([gbdnn.Layer(iso, -0.3, bias_rule="entries", clip=32)]),
        gbdnn.Network([gbdnn.Layer(np.zeros((3, 2)), [0.5, -1.0]), gbdnn.Layer(np.ones((2, 0)))]),
        some_matrix(rng, 9, 6),
        [some_matrix(rng, n, 6).astype(np.float32) for n in (4, 1, 0, 3)],
        [],
        np.array([3, 5, 9, 1000]),
    ):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(features, "PART", 8):
            if isinstance(x, list):
                gbdnn.io.write_features(x, folder, ncols=6)
            else:
                gbdnn.save(x, folder)
            found.append({path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()})
    return found


def signed(fields):
    """The bytes of an index under a checksum that is right."""
    import xxhash

    text = json.dumps({**fields, "checksum": "0" * 16}).encode()
    digest = xxhash.xxh3_64_hexdigest(text)
    return text.replace(b'"checksum": "' + b"0" * 16, b'"checksum": "' + digest.encode(), 1)


def _entries(tree):
    """What an index says of arrays, wherever it says it."""
    if isinstance(tree, dict) and {"shard", "tensors"} <= tree.keys():
        yield tree
    elif isinstance(tree, dict | list):
        for each in tree.values() if isinstance(tree, dict) else tree:
            yield from _entries(each)


def sealed(index, files):
    """The index with sizes and checksums of the shards as they are now."""
    import xxhash

    index = json.loads(json.dumps(index))
    for shard in index["shards"]:
        data = files[shard["file"]]
        end = 8 + int.from_bytes(data[:8], "little")
        shard |= {"bytes": len(data), "header_xxh3_64": xxhash.xxh3_64_hexdigest(data[:end])}
    for entry in _entries(index):
        with contextlib.suppress(Exception):  # an array that is not there any more
            held = judge.tensors(files[entry["shard"]])
            for tensor in entry["tensors"].values():
                tensor["xxh3_64"] = xxhash.xxh3_64_hexdigest(held[tensor["name"]].tobytes())
    return index


def damaged_store(whole, rng, path):
    """Write a damaged store; return its index and files as its author means them, and how."""
    files, index = dict(whole), json.loads(whole["index.json"])
    expected, how = whole, rng.randrange(10)
    if how < 3:
        name = rng.choice(sorted(files))
        kinds = mutate.TEXT if name.endswith("json") else mutate.BINARY
        files[name] = mutate.damaged(files[name], rng, kinds)
    else:  # what somebody else wrote, with checksums that are right
        expected = files
        if how < 7:
            index = (fuzz_json.other_json if how < 5 else fuzz_json.other_leaf)(index, rng)
        if how > 5 and len(files) > 1:
            name = rng.choice([name for name in files if name != "index.json"])
            files[name] = fuzz_json.other_safetensors(files[name], rng)
            with contextlib.suppress(Exception):  # an index with another fault
                index = sealed(index, files)
        files["index.json"] = signed(index)
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)
    return index, expected, how


def case_store(rng, folder):
    import gbdnn

    path = folder / "store"
    index, expected, how = damaged_store(rng.choice(made("stores", stores)), rng, path)
    verify, rows = how < 3 or rng.random() < 0.5, slice(rng.randrange(-9, 9), rng.randrange(-9, 9))

    def read():
        found = gbdnn.load(path, verify=verify, lazy=True)
        layers = found.infos if isinstance(found, gbdnn.Network) else [found]
        if max((np.prod(x.shape, dtype=float) for x in layers), default=0) > 10**6:
            return None  # right, and too large to look at
        if isinstance(found, gbdnn.Network):
            return layers_of(found)
        if isinstance(found, np.ndarray):
            return found
        some = gbdnn.io.open_features(path, verify=verify)[rows.start : rows.stop].matrix()
        return found.to_dense(fill_value=0), some.to_dense(fill_value=0)

    def compare(got, expected):
        if isinstance(got, list):
            require_layers(got, expected)
        elif isinstance(got, tuple):
            require_equal(got[0], expected)
            require_equal(got[1], expected[rows])
        else:
            require_equal(got, expected)

    errors = ("FormatError", "MissingFileError", "TooLargeError")
    return judged(read, lambda: judge.store(index, expected), compare, errors=errors)


def torch_files():
    import torch

    import gbdnn

    files = []
    for layout in ("strided", "sparse_csr"):
        for zipped in (True, False):
            state = gbdnn.io.to_torch(a_network("FP32"), layout=layout).state_dict()
            file = io.BytesIO()
            torch.save(state, file, _use_new_zipfile_serialization=zipped)
            files.append(file.getvalue())
    return files


def case_torch(rng, folder):
    import gbdnn

    data, how = rng.choice(made("torch", torch_files)), rng.randrange(6)
    is_zip = data[:2] == b"PK"
    if how < 4:
        data = (mutate.other_zip if is_zip else _same)(data, rng, fuzz_pickle.other_pickle)
    elif is_zip and how == 4:
        data = mutate.other_zip(data, rng)
    else:
        data = mutate.damaged(data, rng, mutate.BINARY)
    path = folder / "net.pt"
    path.write_bytes(data)
    return judged(
        lambda: layers_of(gbdnn.io.read_torch(path)),
        lambda: judge.torch_state(data),
        lambda got, expected: require_layers(got, expected, 2),
        errors=WRONG_NETWORK,
    )


def _same(data, rng, damage):
    return damage(data, rng)
