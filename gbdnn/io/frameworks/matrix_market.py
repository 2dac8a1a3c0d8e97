"""Matrix Market files: a folder with one file of weights per layer, as in LAGraph's test data.

The names of a network's files are a prefix, a number and an ending: ``n1024-l1.mtx``,
``n1024-l2.mtx.gz``; a layer's bias is in ``n1024-l1-bias.mtx``. A file has a banner, comments, a
line of sizes, then as many lines as the sizes say::

    %%MatrixMarket matrix coordinate real general
    %%GraphBLAS type float
    4 4 3
    1 1 .0625
    2 1 .0625
    4 3 .0625

Fields are separated by blanks or tabs. The last line needs a newline, because otherwise ``0.5`` may
be a truncated ``0.5625``. SciPy's parser is not used, because it accepts ``-1.fl`` and crashes on a
text that ends in ``2e``.

R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats", NISTIR 5935, 1996.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_dtype, require_room
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    MissingFileError,
    naming,
)
from gbdnn.io.challenge.layout import in_order, numbered
from gbdnn.io.challenge.table import MAX_INDEX, Index, first_fault, parsed_columns
from gbdnn.io.formats import Assumed, Format
from gbdnn.io.frameworks.scipy import as_csc, require_activation, scipy_sparse
from gbdnn.io.reading import first_duplicate, read_unzipped
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gbdnn.model.layer import Activation, BiasRule

_LAYER = re.compile(r"(.*?)([0-9]+)\.mtx(\.gz)?", re.DOTALL)
_NAMES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
_BANNER = re.compile(
    rb"(?i:\s*%%?MatrixMarket[ \t]+matrix[ \t]+(coordinate|array)"
    rb"[ \t]+(real|integer|unsigned-integer|pattern)"
    rb"[ \t]+(general|symmetric|skew-symmetric))[ \t]*\r?\n"
)
_FP32 = re.compile(rb"%%GraphBLAS (type float|GrB_FP32)[ \t]*\r?\n")
_COMMENTS = re.compile(rb"(?:%[^\n]*\n|[ \t]*\r?\n)*+")
_SIZES = re.compile(rb"[ \t]*([0-9]{1,19})[ \t]+([0-9]{1,19})(?:[ \t]+([0-9]{1,19}))?[ \t]*\r?\n")
_TABS = bytes.maketrans(b" Dd", b"\tee")  # 1.5D+01 is Fortran's 1.5e+01


def _read(
    path: Path,
    *,
    prefix: str | None = None,
    bias: float | None = None,
    bias_rule: BiasRule = "all",
    clip: float | None = None,
    last_activation: Activation = "relu",
    dtype: Any = None,
) -> Network:
    """Return the network of one file per layer; `bias` is that of layers without a bias file.

    Without `dtype`, real values are FP64 unless the header declares ``float``, patterns FP32, and
    integers FP32 if it represents them exactly.
    """
    require_activation(last_activation)
    if prefix is not None and not isinstance(prefix, str):
        raise ArgumentTypeError(f"prefix must be a str, not {shown(prefix)}")
    options: dict[str, Any] = {
        "bias_rule": bias_rule,
        "dtype": None if dtype is None else as_dtype(dtype),
    }
    # Validates the options before the first file is read.
    Layer(np.empty((0, 0)), 0.0 if bias is None else bias, clip=clip, **options)
    scipy_sparse()
    files = _files(path, prefix) if path.is_dir() else [path]
    layers = []
    for k, file in enumerate(files):
        identity = last_activation == "identity" and k == len(files) - 1
        W = parse(read_unzipped(file), file)
        b: Any = _read_bias(file)
        if b is None:
            b = 0.0 if bias is None else bias
        elif bias is not None:
            raise ArgumentError(f"bias= cannot be combined with the file {_bias_file(file)}")
        activation: Activation = "identity" if identity else "relu"
        clipped: dict[str, Any] = {"activation": activation, "clip": None if identity else clip}
        exact = {"dtype": np.dtype(np.float64)} if dtype is None and W.dtype == np.int64 else {}
        with naming(file):
            layers.append(Layer(W, b, **clipped, **options | exact))
    return Network(layers)


def _write(net: Network, folder: Path) -> None:
    """Write weights and biases as ``n1024-l1.mtx``, ``n1024-l1-bias.mtx`` and so on.

    The first number is that of inputs. Values have enough digits to be read with the same bits.
    """
    scipy_sparse()
    for k, layer in enumerate(net, 1):
        path = folder / f"n{net.shape[0]}-l{k}.mtx"
        with path.open("wb") as file:
            write_entries(file, as_csc(layer).astype(np.float64), layer.dtype)
        bias = np.atleast_2d(np.asarray(layer.given_bias, np.float64))
        with _bias_file(path).open("wb") as file:
            write_entries(file, bias, bias.dtype)


def _files(folder: Path, prefix: str | None) -> list[Path]:
    """Return the files of the one network in `folder`, in the order of their numbers."""
    networks = numbered(folder, _LAYER)
    if prefix is not None:
        networks = {prefix: networks[prefix]} if prefix in networks else {}
    if not networks:
        expected = f"{'<prefix>' if prefix is None else prefix}<number>.mtx"
        raise MissingFileError(f"{folder}: no layers; expected files {expected}")
    if len(networks) > 1:
        raise ArgumentError(
            f"{folder}: the folder contains several networks; pass prefix=, one of "
            + ", ".join(repr(name) for name in sorted(networks))
        )
    [(name, files)] = networks.items()
    return in_order(files, range(0 if 0 in files else 1, max(files) + 1), name, ".mtx")


def write_entries(file: BinaryIO, A: Any, dtype: np.dtype) -> None:
    """Write a matrix of float64 to a file that is read in another dtype."""
    import scipy.io

    scipy.io.mmwrite(
        file, A, comment=f"%GraphBLAS type {_NAMES[dtype]}", field="real", symmetry="general"
    )


def _read_bias(weights: Path) -> np.ndarray | None:
    """Return the bias of a layer, or None if it has no file."""
    plain = _bias_file(weights)
    for path in (plain, plain.with_name(plain.name + ".gz")):
        try:
            data = read_unzipped(path)
        except MissingFileError:
            continue
        A = parse(data, path)
        if 1 not in A.shape:
            raise FormatError(
                f"{path}: a bias must have one row or one column, not shape {A.shape}"
            )
        require_room(8 * max(A.shape), f"{path}: a bias of shape {A.shape}")
        dense: np.ndarray = A if isinstance(A, np.ndarray) else A.toarray()
        return dense.reshape(-1) if dense.size > 1 else dense.reshape(())
    return None


def _bias_file(weights: Path) -> Path:
    """Return the path of a layer's bias: ``l1-bias.mtx`` for ``l1.mtx.gz``."""
    return weights.with_name(weights.name.removesuffix(".gz").removesuffix(".mtx") + "-bias.mtx")


class _Head(NamedTuple):
    """The header of a file."""

    layout: str
    symmetry: str
    shape: tuple[int, int]
    lines: int  # of entries
    dtype: np.dtype | None  # of the values; None for a pattern
    is_integer: bool
    start: int  # of the entries, in bytes


def parse(data: bytes, path: Path) -> Any:
    """Return the content of a file as a COO array or an ndarray.

    Values are float64; float32 if the second line is ``%%GraphBLAS type float``, or if all values
    are integers that it represents exactly, int64 for other integers; int8 for a pattern.
    """
    head = _head(data, path)
    indices = [Index("row", head.shape[0], "the number of rows")]
    indices += [Index("column", head.shape[1], "the number of columns")]
    if head.layout == "array":
        indices = []
    text = data[head.start :]
    columns, _ = parsed_columns(text.translate(_TABS), indices, head.dtype)
    if columns is None:
        tidied = b"".join(line for line in _tidied(text) if line != b"\n")
        columns, _ = parsed_columns(tidied, indices, head.dtype)
    if columns is None:
        before = data.count(b"\n", 0, head.start)
        fault = first_fault(_tidied(text), before, indices, head.dtype, allow_blank=True)
        raise FormatError(f"{path}{fault}")
    if len(columns[-1]) != head.lines:
        raise FormatError(
            f"{path}: found {len(columns[-1])} entries, but the size line states {head.lines}"
        )
    values = np.ones(head.lines, np.int8) if head.dtype is None else columns[-1]
    values = _integers(values, path) if head.is_integer else values
    if head.layout == "array" and head.symmetry == "general":
        return values.reshape(head.shape[::-1]).T
    if head.layout == "array":  # columns of the lower triangle, which are rows of the upper one
        cols, rows = np.triu_indices(head.shape[0], int(head.symmetry == "skew-symmetric"))
    else:
        rows, cols = (x.astype(np.int64) for x in columns[:2])
    A = _entries(head, rows, cols, values, path)
    return A.toarray() if head.layout == "array" else A


def _head(data: bytes, path: Path) -> _Head:
    banner = _BANNER.match(data)
    if banner is None:
        text = ascii(data[:80].split(b"\n")[0].decode("latin-1"))
        raise FormatError(
            f"{path}, line 1: unsupported Matrix Market banner {text}; expected '%%MatrixMarket"
            " matrix coordinate|array real|integer|pattern general|[skew-]symmetric'"
        )
    layout, field, symmetry = (word.decode().lower() for word in banner.groups())
    if (layout, field) == ("array", "pattern"):
        raise FormatError(f"{path}, line 1: the format array does not support the field pattern")
    comments = _COMMENTS.match(data, banner.end())
    start = comments.end() if comments else banner.end()
    sizes, line = _SIZES.match(data, start), data.count(b"\n", 0, start) + 1
    if sizes is None or (sizes[3] is None) != (layout == "array"):
        raise FormatError(f"{path}, line {line}: expected the size line")
    nrows, ncols, count = (int(size or b"0") for size in sizes.groups(b""))
    if max(nrows, ncols) > MAX_INDEX:
        raise FormatError(
            f"{path}, line {line}: shape {nrows} x {ncols} exceeds the maximum of {MAX_INDEX}"
        )
    if symmetry != "general" and nrows != ncols:
        raise FormatError(
            f"{path}, line {line}: a {symmetry} matrix must be square, not {nrows} x {ncols}"
        )
    if layout == "array":
        triangle = nrows * (nrows + (1 if symmetry == "symmetric" else -1)) // 2
        count = nrows * ncols if symmetry == "general" else triangle
    single = _FP32.match(data, banner.end()) and field == "real"
    dtype = None if field == "pattern" else np.dtype(np.float32 if single else np.float64)
    return _Head(
        layout, symmetry, (nrows, ncols), count, dtype, field.endswith("integer"), sizes.end()
    )


def _integers(values: np.ndarray, path: Path) -> np.ndarray:
    """Return integers as float32 if it represents all of them, else as int64."""
    if (np.rint(values) != values).any() or np.abs(values).max(initial=0) >= 2**53:
        raise FormatError(f"{path}: a value is not an integer below 2^53")
    single = values.astype(np.float32)
    return single if (single == values).all() else values.astype(np.int64)


def _tidied(text: bytes) -> Iterator[bytes]:
    """Yield lines with one tab between fields; blank lines and comments become empty."""
    for line in io.BytesIO(text):
        line = b"\n" if line.startswith(b"%") and line.endswith(b"\n") else line
        fields = re.split(rb"[ \t]+", line.rstrip(b"\n").removesuffix(b"\r").strip(b" \t"))
        yield b"\t".join(fields).translate(_TABS) + b"\n" * line.endswith(b"\n")


def _entries(
    head: _Head, rows: np.ndarray, cols: np.ndarray, values: np.ndarray, path: Path
) -> Any:
    """Return a COO array, with the other triangle of a symmetric matrix."""
    if head.symmetry != "general":
        mirrored = rows != cols
        if head.symmetry == "skew-symmetric" and not mirrored.all():
            k = int(rows[~mirrored][0]) + 1
            raise FormatError(
                f"{path}: a skew-symmetric matrix has no entry in row {k}, column {k}"
            )
        sign = values.dtype.type(1 if head.symmetry == "symmetric" else -1)
        values = np.append(values, sign * values[mirrored])
        rows, cols = np.append(rows, cols[mirrored]), np.append(cols, rows[mirrored])
    A = scipy_sparse().coo_array((values, (rows, cols)), shape=head.shape)
    distinct = A.copy()
    distinct.sum_duplicates()
    if distinct.nnz < A.nnz:
        _, second = first_duplicate(rows, cols)
        raise FormatError(
            f"{path}: duplicate entry in row {rows[second] + 1}, column {cols[second] + 1}"
        )
    return A


MATRIX_MARKET = Format(
    name="matrix-market",
    read=_read,
    write=_write,
    options="prefix bias bias_rule clip last_activation",
    suffixes=(".mtx", ".mtx.gz"),
    mark=r".*[0-9]\.mtx(\.gz)?",
    assumed=Assumed(),
)
