"""Readers of gbdnn's formats that share no code with it: what a damaged file says, or that it says
nothing.

Each returns content, a list of layers ``(W, b, activation, clip)`` or an array, or raises.
"""

import gzip
import io
import json
import math
import re
import struct
from fractions import Fraction

import numpy as np

REAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
WHOLE = re.compile(r"[+-]?[0-9]+")


class WrongError(Exception):
    pass


def require(condition):
    if not condition:
        raise WrongError


def unpacked(data):
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def value(text, pattern=REAL):
    require(pattern.fullmatch(text))
    found = float(text)
    require(math.isfinite(found))
    return found


def whole(text):
    require(WHOLE.fullmatch(text) and len(text) < 100)
    return int(text)


def single(text):
    """The float32 that is nearest to a decimal number; by way of float64 it may be another."""
    with np.errstate(over="ignore"):
        near = np.float32(float(text))
    require(np.isfinite(near))
    if abs(near) < 1e-30:
        return near
    exact = Fraction(text)
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(
        (x for x in around if np.isfinite(x)),
        key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1),
    )


def matrix_market(data):
    text = unpacked(data).decode("latin-1")
    require(text.endswith("\n"))
    rows = text[:-1].split("\n")
    rows = [row.removesuffix("\r") for row in rows]
    banner = re.split("[ \t]+", rows[0].rstrip(" \t"))
    require(banner[0].lower() == "%%matrixmarket" and len(banner) == 5)
    kind, layout, field, symmetry = (word.lower() for word in banner[1:])
    require(kind == "matrix" and layout in ("coordinate", "array"))
    require(field in ("real", "integer", "pattern", "unsigned-integer"))
    require(symmetry in ("general", "symmetric", "skew-symmetric"))
    is_single = len(rows) > 1 and rows[1].rstrip(" \t") in (
        "%%GraphBLAS type float",
        "%%GraphBLAS GrB_FP32",
    )
    body, begun = [], False
    for row in rows[1:]:
        require(begun or "\r" not in row or row.startswith("%"))
        if row.startswith("%") and not begun:
            continue
        fields = [x for x in re.split("[ \t]", row) if x]
        if fields:
            begun = True
            body.append(fields)
    sizes = [whole(x) for x in body[0]]
    require(all(x[0].isdigit() for x in body[0]))
    body = body[1:]
    require(len(sizes) == (3 if layout == "coordinate" else 2))
    n, m = sizes[:2]
    require(symmetry == "general" or n == m)
    require(n <= 10**4 and m <= 10**4)
    A, seen = np.zeros((n, m)), set()
    pattern = REAL if field == "real" else WHOLE

    def put(i, j, x):
        require(1 <= i <= n and 1 <= j <= m and (i, j) not in seen)
        seen.add((i, j))
        A[i - 1, j - 1] = x

    if layout == "array":
        require(field != "pattern" and all(len(x) == 1 for x in body))
        low = {"general": lambda j: 0, "symmetric": lambda j: j}.get(symmetry, lambda j: j + 1)
        entries = [(i + 1, j + 1) for j in range(m) for i in range(low(j), n)]
        require(len(entries) == len(body))
        entries = [(*at, x[0]) for at, x in zip(entries, body, strict=True)]
    else:
        require(len(body) == sizes[2])
        require(all(len(x) == (2 if field == "pattern" else 3) for x in body))
        entries = [(whole(x[0]), whole(x[1]), "1" if len(x) == 2 else x[2]) for x in body]
    for i, j, text in entries:
        x = value(text, pattern)
        require(field == "real" or x == int(text))
        x = single(text) if is_single and field == "real" else x
        put(i, j, x)
        if symmetry != "general" and i != j:
            put(j, i, x if symmetry == "symmetric" else -x)
        require(symmetry != "skew-symmetric" or i != j)
    _require_scipys(data, A, is_single)
    return A


def _require_scipys(data, A, is_single):
    """SciPy, which knows nothing of a comment that tells single precision, reads the same."""
    import scipy.io

    if not A.size:
        return  # SciPy divides by the number of rows, which ends the process
    plain = re.sub(rb"(?m)(^|[ \t])\+", rb"\1", unpacked(data))  # it knows no sign but "-"
    found = scipy.io.mmread(io.BytesIO(plain))
    found = found.toarray() if hasattr(found, "toarray") else found
    require(np.array_equal(found.astype(np.float32), A) if is_single else np.array_equal(found, A))


def tsv(data):
    text = unpacked(data).decode("latin-1")
    require(text.endswith("\n"))
    entries = {}
    for row in text[:-1].split("\n"):
        fields = row.removesuffix("\r").split("\t")
        require(len(fields) == 3)
        at = tuple(whole(x) for x in fields[:2])
        require(min(at) >= 1 and max(at) <= 2**60 and at not in entries)
        value(fields[2])
        entries[at] = single(fields[2])
    shape = tuple(max(at[k] for at in entries) for k in (0, 1))
    return shape, {at: float(x) for at, x in entries.items() if x}


def categories(data):
    text = unpacked(data).decode("latin-1")
    require(text.endswith("\n"))
    ids = [whole(x.removesuffix("\r")) for x in text[:-1].split("\n")]
    require(min(ids) >= 1 and max(ids) <= 2**60 and len(set(ids)) == len(ids))
    return np.sort(ids) - 1


def idx(data):
    data = unpacked(data)
    kinds = {8: ("B", 1), 9: ("b", 1), 11: ("h", 2), 12: ("i", 4), 13: ("f", 4), 14: ("d", 8)}
    require(len(data) >= 4 and data[:2] == b"\0\0" and data[2] in kinds)
    letter, size = kinds[data[2]]
    require(len(data) >= 4 + 4 * data[3])
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    count, body = math.prod(shape), data[4 + 4 * data[3] :]
    require(count * size == len(body) and count < 10**6 and len(shape) < 30)
    return np.array(struct.unpack(f">{count}{letter}", body)).reshape(shape)


def labels(data):
    data = unpacked(data)
    if data[:2] == b"\0\0":
        found = idx(data)
        require(found.ndim == 1 and (found.size == 0 or found.min() >= 0) and data[2] < 13)
        return found
    text = data.decode("latin-1")
    require(text.endswith("\n"))
    found = [whole(x.removesuffix("\r").strip(" \t")) for x in text[:-1].split("\n")]
    require(min(found) >= 0 and max(found) < 10**18)
    return np.array(found)


def npz(data):
    """The array of an archive, or the matrix that SciPy wrote into it, dense."""
    import scipy.sparse

    with np.load(io.BytesIO(data), allow_pickle=False) as archive:
        if {"format", "shape"} <= set(archive.files):
            return scipy.sparse.load_npz(io.BytesIO(data)).toarray()
        (name,) = archive.files
        return archive[name]


def tensors(data):
    """The arrays of a safetensors file."""
    length = int.from_bytes(data[:8], "little")
    head, body = json.loads(data[8 : 8 + length]), data[8 + length :]
    kinds = {"U32": "<u4", "U64": "<u8", "F32": "<f4", "F64": "<f8", "I64": "<i8"}
    found = {}
    for name, each in head.items():
        if name != "__metadata__":
            start, stop = each["data_offsets"]
            found[name] = np.frombuffer(body[start:stop], kinds[each["dtype"]])
    return found


def matrix(entry, shards):
    """A matrix of a store, dense; its arrays by their names, the type of its values."""
    held = tensors(shards[entry["shard"]])
    array = {role: held[place["name"]] for role, place in entry["tensors"].items()}
    given = entry["binsparse"]
    require(type(given["shape"]) is list and all(type(n) is int for n in given["shape"]))
    n, m = given["shape"]
    by_row = given["format"] == "CSR"
    require(by_row or given["format"] == "CSC")
    pointers, indices = array["pointers_to_1"], array["indices_1"]
    nvals = given["number_of_stored_values"]
    require(type(nvals) is int and nvals == len(indices))
    iso = given["data_types"]["values"] in ("iso[float32]", "iso[float64]")
    kind = given["data_types"]["values"].removeprefix("iso[").removesuffix("]")
    require(array["values"].dtype == np.dtype(kind) and (not iso or len(array["values"]) == 1))
    for role in ("pointers_to_1", "indices_1"):
        require(array[role].dtype == np.dtype(given["data_types"][role]))
    values = np.broadcast_to(array["values"], nvals) if iso else array["values"]
    require(np.isfinite(values).all() and len(values) == nvals)
    along, across = (n, m) if by_row else (m, n)
    require(len(pointers) == along + 1 and pointers[0] == 0 and pointers[-1] == nvals)
    A = np.zeros((along, across))
    for k in range(along):
        for p in range(int(pointers[k]), int(pointers[k + 1])):
            A[k, int(indices[p])] = values[p]
    return (A if by_row else A.T), array, kind


def store(index, shards):
    """The content of a store: its index, parsed, and the bytes of its shards by name."""
    require(type(index) is dict and index["kind"] in ("network", "features", "categories"))
    for shard in index["shards"]:
        require(type(shard["bytes"]) is int and len(shards[shard["file"]]) == shard["bytes"])

    def plain(x):
        require(type(x) in (int, float) and math.isfinite(x))
        return x

    if index["kind"] == "categories":
        entry = index["categories"]
        ids = tensors(shards[entry["shard"]])[entry["tensors"]["ids"]["name"]]
        require(
            ids.dtype == np.int64 and type(index["count"]) is int and index["count"] == len(ids)
        )
        return ids
    if index["kind"] == "features":
        parts = [matrix(part, shards) for part in index["parts"]]
        shape = index["shape"]
        require(type(shape) is list and all(type(n) is int for n in shape))
        require(all(kind == index["dtype"] for _, _, kind in parts))
        return np.concatenate([np.zeros((0, shape[1])), *(part[0] for part in parts)]).reshape(
            shape
        )
    layers = []
    for entry in index["layers"]:
        W, array, kind = matrix(entry, shards)
        b = array["bias"] if type(entry["bias"]) is dict else plain(entry["bias"])
        require(np.ndim(b) == 0 or b.shape == (W.shape[1],))
        require(entry["bias_rule"] in ("all", "entries"))
        require(entry["activation"] in ("relu", "identity"))
        clip = entry["clip"]
        require(clip is None or plain(clip) > 0)
        clip = None if clip is None else float(np.dtype(kind).type(clip))
        b = np.asarray(b, kind).astype(float)
        layers.append((W, b, entry["activation"], clip, entry["bias_rule"]))
    return layers


def torch_state(data):
    import torch

    state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    layers, names = [], list(state)
    modules = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    for module in modules:
        dot = f"{module}." if module else ""
        held = {name.rpartition(".")[2] for name in names if name.rpartition(".")[0] == module}
        require("weight" in held and held <= {"weight", "bias"})
        W = _torch_array(torch, state[f"{dot}weight"])
        b = _torch_array(torch, state[f"{dot}bias"]) if "bias" in held else np.zeros(())
        require(W.ndim == 2)
        layers.append((W.T, b))
    return layers


def _torch_array(torch, tensor):
    if tensor.layout == torch.strided:
        return tensor.detach().to(torch.float64).numpy()
    require(tensor.layout == torch.sparse_csr and tensor.ndim == 2)
    starts, places = tensor.crow_indices().tolist(), tensor.col_indices().tolist()
    values = tensor.values().tolist()
    n, m = tensor.shape
    require(len(starts) == n + 1 and starts[0] == 0 and starts[-1] == len(places) == len(values))
    A = np.zeros((n, m))
    for i in range(n):
        require(starts[i] <= starts[i + 1])
        for p in range(starts[i], starts[i + 1]):
            require(0 <= places[p] < m)
            A[i, places[p]] = values[p]
    return A


def compressed(form, indptr, indices, data, shape):
    """A CSR or CSC matrix, dense."""
    n, m = shape if form == "csr" else shape[::-1]
    require(len(indptr) == n + 1 and indptr[0] == 0 and indptr[-1] == len(indices) == len(data))
    A = np.zeros((n, m))
    for i in range(n):
        require(indptr[i] <= indptr[i + 1])
        for p in range(indptr[i], indptr[i + 1]):
            require(0 <= indices[p] < m)
            A[i, indices[p]] += data[p]
    return A if form == "csr" else A.T
