"""Convert a caller's matrix to sparse rows: a copy, finite, without stored zeros.

Accepts ``graphblas.Matrix`` (and its transpose), SciPy sparse arrays and matrices of any format,
and 2-D NumPy arrays. The caller's object is not modified, except that pending GraphBLAS work is
completed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import numpy as np

from gbdnn.arrays.checks import (
    FEWER_NODES,
    FEWER_ROWS,
    as_array,
    finite,
    require_exact,
    require_room,
)
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from gbdnn.runtime.first_use import complete, gb, is_object, shown
from gbdnn.runtime.optional import if_imported
from gbdnn.runtime.signals import from_handler

if TYPE_CHECKING:
    import scipy.sparse

__all__ = [
    "MatrixLike",
    "as_columns",
    "as_dense",
    "as_features",
    "as_held",
    "as_matrix",
    "as_rows",
    "checked_scipy",
    "dtype_of",
    "is_graphblas",
    "is_matrix",
    "is_scipy",
    "is_vector",
    "is_vectors",
    "shape_of",
    "to_array",
]

_LARGE = 1 << 20  # entries of a matrix whose copy is faster in NumPy's memory

MatrixLike: TypeAlias = "gb.Matrix | scipy.sparse.sparray | scipy.sparse.spmatrix | np.ndarray"


def is_graphblas(x: object) -> TypeGuard[gb.Matrix]:
    """Whether `x` is a ``graphblas.Matrix``, a transpose, or an expression that becomes one."""
    return type(x).__module__ == "graphblas.core.matrix"


def is_scipy(x: object) -> bool:
    """Whether `x` is a SciPy sparse array or matrix."""
    issparse = if_imported("scipy.sparse", "issparse")
    return issparse is not None and issparse(x)


def is_matrix(x: object) -> bool:
    """Whether `x` is of a type that `as_matrix` accepts, regardless of its shape."""
    return isinstance(x, np.ndarray) or is_graphblas(x) or is_scipy(x)


def as_held(x: Any, what: str) -> Any:
    """Return an argument as a matrix of an accepted type.

    GraphBLAS expressions are computed, ``A @ B`` with plus_times. Objects with ``__array__``, such
    as data frames and tensors, are converted to an array without importing their library.
    """
    if not type(x).__module__.startswith("graphblas."):  # some have __array__, which may raise
        return _from_array_like(x, what)
    complete(x)
    if is_graphblas(x):
        return x
    with contextlib.suppress(TypeError):  # A | B needs an operator; shape_of has the remedy
        return x.new() if hasattr(x, "new") else x
    return x


def _from_array_like(x: Any, what: str) -> Any:
    if is_matrix(x) or isinstance(x, type | np.generic) or not hasattr(x, "__array__"):
        return x
    try:
        array = np.asarray(x)
    except Exception as err:  # any exception, raised by another library
        if from_handler(err):
            raise
        raise ArgumentTypeError(f"{what}: cannot convert {_kind(x)} to an array: {err}") from err
    if array.dtype.kind == "O":  # columns of different or of nullable types
        array = _numbers(array, x, what)
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(
            f"{what} must contain only real numbers; {_kind(x)} contains others"
        )
    return array


def _numbers(array: np.ndarray, x: Any, what: str) -> np.ndarray:
    """Return an array of objects that are numbers as an array of numbers."""
    for place, value in np.ndenumerate(array):
        if not isinstance(value, Real | np.bool_):
            names = getattr(x, "columns", range(array.shape[-1]))
            column = f", column {names[place[1]]!r}" if len(place) == 2 else ""
            raise ArgumentTypeError(
                f"{what} must contain only real numbers; row {place[0]}{column} of {_kind(x)} is"
                f" {shown(value)}"
            )
    return np.array(array.tolist()).reshape(array.shape)


def as_features(x: Any, what: str) -> Any:
    """Return features of any accepted type as a matrix or stored features.

    As for `as_held`. A Vector, or a list of them, becomes a matrix of rows, and lists of numbers
    become arrays. A 1-D array is one input.
    """
    if type(x) is np.ndarray and x.ndim == 2:  # fast for the sake of single inputs
        return x
    x = as_held(x, what)
    if not is_vectors(x):
        x = as_array(x, what) if isinstance(x, list | tuple) else x
        return x[np.newaxis] if isinstance(x, np.ndarray) and x.ndim == 1 else x
    vectors = x if isinstance(x, list | tuple) else [x]
    if len(sizes := sorted({v.size for v in vectors})) > 1:
        raise ShapeError(f"{what} are Vectors of different sizes: {sizes[0]} and {sizes[-1]}")
    columns, values = zip(*(v.to_coo() for v in vectors), strict=True)
    rows = np.repeat(np.arange(len(vectors)), [len(column) for column in columns])
    return gb.Matrix.from_coo(
        rows, np.concatenate(columns), np.concatenate(values), nrows=len(vectors), ncols=sizes[0]
    )


def is_vector(x: Any) -> bool:
    """Whether `x` is a ``graphblas.Vector``, or an expression of one."""
    return type(x).__module__ == "graphblas.core.vector"


def is_vectors(x: Any) -> bool:
    """Whether `x` is a ``graphblas.Vector`` or a list of them."""
    vectors = x if isinstance(x, list | tuple) and x else [x]
    return all(is_object(v) and is_vector(v) for v in vectors)


def as_dense(x: Any, what: str, dtype: np.dtype) -> np.ndarray:
    """Return features of any accepted type as an array; one input may be 1-D.

    Arrays and lists keep their dtype; the others are cast to `dtype`.
    """
    x = as_held(x, what)
    is_stored = hasattr(x, "sparse_rows")
    if not (is_stored or is_vectors(x) or is_graphblas(x) or is_scipy(x)):
        return as_array(x, what)
    X = as_features(x, what)
    rows = X.sparse_rows(0, X.nrows) if is_stored else as_rows(X, what=what, dtype=dtype)
    return rows.dense()[0] if is_vector(x) else rows.dense()


def shape_of(x: MatrixLike, what: str) -> tuple[int, int]:
    """Return the shape of a matrix of any accepted type; `what` names it in an error."""
    if type(x) is np.ndarray and x.ndim == 2:  # the common case, fast for the sake of single inputs
        return x.shape
    if not is_matrix(x):
        remedy = ""
        if type(x).__module__ == "graphblas.core.infix":
            remedy = "; compute the expression with a monoid or semiring and .new()"
        elif isinstance(x, str | os.PathLike):
            remedy = "; read the file with gbdnn.io.read_features"
        elif isinstance(x, Iterator):
            remedy = "; pass batches to gbdnn.infer_batches or gbdnn.io.write_features"
        raise ArgumentTypeError(
            f"{what} must be a graphblas.Matrix, a SciPy sparse array or a 2-D NumPy array,"
            f" not {_kind(x)}{remedy}"
        )
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{what}: masked arrays are not supported; use filled(0)")
    try:
        shape: tuple[int, ...] = x.shape  # type: ignore[union-attr]
        dtype_of(x)  # of A.data, which may have any type
    except AttributeError as err:
        raise ArgumentError(f"{what}: invalid SciPy array: {err}") from err
    if len(shape) != 2:
        remedy = f"; reshape({shape[0]}, -1) gives each input a row" if len(shape) > 2 else ""
        raise ShapeError(f"{what} must have two dimensions, not shape {shape}{remedy}")
    return int(shape[0]), int(shape[1])


def dtype_of(x: Any) -> np.dtype:
    """Return the dtype of a matrix of any accepted type, in native byte order."""
    return np.dtype(getattr(x.dtype, "np_type", x.dtype)).newbyteorder("=")


def as_rows(
    x: MatrixLike, *, what: str, dtype: np.dtype | None = None, copy: bool = True,
    transposed: bool = False,
) -> SparseRows:  # fmt: skip
    """Return the rows of a caller's matrix.

    Parameters
    ----------
    x : Matrix, SciPy sparse or 2-D ndarray, shape (nrows, ncols)
        A result of `as_held`. Stored zeros (-0.0 too) are dropped; duplicates of a SciPy array are
        summed.
    what : str
        Name of `x` in error messages: ``"layer 3: weights"``.
    dtype : float32 or float64, optional
        Cast to this. Default: FP32 and FP64 stay; bool, integers and FP16 become FP32. Integers
        above 2**24 are not cast to FP32.
    copy : bool
        False takes ownership of a ``graphblas.Matrix``, which is empty afterwards.
    transposed : bool
        Whether to return the columns, as the rows of the transpose.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        `x` is not a real matrix, a value is not finite, or a SciPy array is invalid.
    TooLargeError
        The row pointers alone would not fit into memory.
    """
    nrows, ncols = shape_of(x, what)
    along, n = ("column", ncols) if transposed else ("row", nrows)
    remedy = FEWER_NODES if what in ("A", "G") else "" if transposed else FEWER_ROWS
    require_room(8 * n, f"{what}: {nrows} x {ncols}: {along} pointers alone", remedy)
    if is_graphblas(x):
        rows = _from_graphblas(x, transposed, copy)
    elif is_scipy(x):
        try:
            rows = _from_scipy(x, transposed)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as err:
            raise ArgumentError(f"{what}: invalid SciPy array: {err}") from err
    else:
        A = np.asarray(x)
        rows = SparseRows.from_array(A.T if transposed else A)
    values = rows.values[:1] if rows.is_iso else rows.values
    require_exact(values, dtype, what)
    place = (lambda k: rows.place(k)[::-1]) if transposed else rows.place
    copy = not is_graphblas(x)  # the others have been copied
    values = finite(values, dtype, what, copy=copy, place=place)
    rows = SparseRows(rows.indptr, rows.columns, values, rows.ncols)
    return rows if values.all() else rows.without_zeros()


as_columns = partial(as_rows, transposed=True)


def as_matrix(x: MatrixLike, *, what: str, dtype: np.dtype | None = None) -> gb.Matrix:
    """Return `x` as a new, row-wise GraphBLAS matrix; parameters and errors as for `as_rows`."""
    return as_rows(x, what=what, dtype=dtype).matrix()


def to_array(X: gb.Matrix) -> np.ndarray:
    """Return a matrix as an array, with 0 where nothing is stored."""
    if not X.ss.format.startswith(("full", "bitmap")):
        return X.to_dense(fill_value=0)
    arrays = X.ss.export()
    values = arrays["values"]
    if arrays["is_iso"]:
        values = np.broadcast_to(values.reshape(1, 1), X.shape)
    if "bitmap" in arrays:
        values = np.where(arrays["bitmap"], values, values.dtype.type(0))
    return values


def _from_graphblas(A: gb.Matrix, transposed: bool, copy: bool) -> SparseRows:
    held = A.T if isinstance(A, gb.core.matrix.TransposedMatrix) else A
    # Row-wise arrays of the transpose are the column-wise arrays of the matrix.
    name = "csc" if transposed == (held is A) else "csr"
    large = copy and name == "csr" and held.nvals >= _LARGE
    if large and held.ss.orientation == "rowwise" and not held.ss.is_iso:
        return _copied(held)
    A = held.dup() if copy or held is not A else held
    arrays = A.ss.export(name, give_ownership=True, sort=True)
    ncols = arrays["nrows" if name == "csc" else "ncols"]
    indices = arrays["row_indices" if name == "csc" else "col_indices"]
    return SparseRows(arrays["indptr"], indices, arrays["values"], ncols)


def _copied(A: gb.Matrix) -> SparseRows:
    """Return the rows of a row-wise matrix with different values as arrays of NumPy.

    Their fresh memory has huge pages: a copy by GraphBLAS takes three times as long.
    """
    _, columns, values = A.to_coo(rows=False)
    degrees = gb.semiring.plus_pair["INT64"](A @ gb.Vector.from_scalar(True, A.ncols)).new()
    indptr = np.zeros(A.nrows + 1, np.int64)
    np.cumsum(degrees.to_dense(fill_value=0), out=indptr[1:])
    return SparseRows(indptr.view(np.uint64), columns, values, A.ncols)


def _from_scipy(A: Any, transposed: bool) -> SparseRows:
    A = checked_scipy(A)
    C = A.tocsc() if transposed else A.tocsr()
    C.sum_duplicates()
    ncols = C.shape[0 if transposed else 1]
    indptr, columns = C.indptr.astype(np.uint64), C.indices.astype(np.uint64)
    return SparseRows(indptr, columns, C.data, ncols)


def _kind(x: object) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")


def checked_scipy(A: Any) -> Any:
    """Return a copy in CSR, CSC, BSR or COO format after checking all indices.

    SciPy's compiled code trusts the indices. An exception of SciPy names the invalid array.
    """
    if A.format in ("csr", "csc", "bsr"):
        A = A.copy()
        A.check_format(full_check=True)
        if (A.indptr[1:] < A.indptr[:-1]).any():  # not found by SciPy in an array without entries
            raise ValueError("indptr decreases")
        return A
    if A.format == "lil" and [len(row) for row in A.rows] != [len(values) for values in A.data]:
        raise ValueError("rows and data have lists of different lengths")
    A = (A.copy() if A.format == "dia" else A).tocoo()  # copying compares data and offsets
    return type(A)((A.data, (A.row, A.col)), A.shape, copy=True)
