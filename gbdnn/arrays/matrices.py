"""From a caller's matrix to one of ours: a copy, finite, without stored zeros, FP32 or FP64.

Accepted are ``graphblas.Matrix`` (and its transpose), SciPy sparse arrays and matrices of any
format, and 2-D NumPy arrays. All go one way: read into compressed arrays, check the values there,
and hand the arrays to GraphBLAS. What the caller holds is never changed.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeGuard

import graphblas as gb
import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, TooLargeError

if TYPE_CHECKING:
    import scipy.sparse

__all__ = [
    "Compressed",
    "MatrixLike",
    "Orientation",
    "as_array",
    "as_compressed",
    "as_dtype",
    "as_matrix",
    "dtype_of",
    "finite",
    "floating",
    "import_arrays",
    "is_graphblas",
    "is_matrix",
    "oriented",
    "require_room",
    "shape_of",
]

MatrixLike: TypeAlias = "gb.Matrix | scipy.sparse.sparray | scipy.sparse.spmatrix | np.ndarray"
Orientation = Literal["rowwise", "columnwise"]

_INDICES = {"rowwise": "col_indices", "columnwise": "row_indices"}
_SORTED = {"rowwise": "sorted_cols", "columnwise": "sorted_rows"}
_FORMAT = {"rowwise": "csr", "columnwise": "csc"}


class Compressed(NamedTuple):
    """CSR (rowwise) or CSC (columnwise) arrays; ``values`` has one item if all are equal."""

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    is_iso: bool

    def largest_sum(self) -> float:
        """Return the largest sum of absolute values in a row (CSR) or column (CSC)."""
        starts = self.indptr.view(np.int64)
        degree = np.diff(starts)
        if not degree.any():
            return 0.0
        if self.is_iso:
            return float(degree.max()) * abs(float(self.values[0]))
        sizes = np.abs(self.values, dtype=np.float64)
        return float(np.add.reduceat(sizes, starts[:-1][degree > 0]).max())


def is_graphblas(x: object) -> TypeGuard[gb.Matrix]:
    """Whether `x` is a ``graphblas.Matrix`` or the transpose of one."""
    # A foreign object never makes GraphBLAS initialise: its classes are looked up by module.
    module = type(x).__module__
    return module.startswith("graphblas.core.matrix") and hasattr(x, "nvals")


def is_matrix(x: object) -> bool:
    """Whether `x` is of a kind that `as_matrix` takes, whatever its shape."""
    return is_graphblas(x) or _is_scipy(x) or isinstance(x, np.ndarray)


def shape_of(x: MatrixLike, what: str) -> tuple[int, int]:
    """Return the shape of a matrix of any accepted kind; `what` names it in an error."""
    if not is_matrix(x):
        raise ArgumentTypeError(
            f"{what}: a graphblas.Matrix, a SciPy sparse array or a 2-D NumPy array is needed,"
            f" not {_kind(x)}"
        )
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{what}: a masked array; fill what is masked: filled(0)")
    shape: tuple[int, ...] = x.shape  # type: ignore[union-attr]
    if len(shape) != 2:
        raise ShapeError(f"{what}: {len(shape)}-D, shape {shape}; a matrix has two dimensions")
    return int(shape[0]), int(shape[1])


def dtype_of(x: Any) -> np.dtype:
    """Return the dtype of a matrix of any accepted kind, in native byte order."""
    return np.dtype(getattr(x.dtype, "np_type", x.dtype)).newbyteorder("=")


def as_array(x: Any, what: str) -> np.ndarray:
    """Return a number, or a sequence or array of any rank, as an array of real numbers."""
    if isinstance(x, np.ma.MaskedArray):
        raise ArgumentTypeError(f"{what}: a masked array; fill what is masked: filled(0)")
    try:
        # An int of any size is a number; NumPy makes an object of one beyond 64 bits.
        array = np.asarray(float(x) if type(x) is int else x)
    except OverflowError as err:
        raise ArgumentError(f"{what}: a number of {x.bit_length()} bits does not fit") from err
    except (TypeError, ValueError) as err:
        raise ArgumentTypeError(f"{what}: not an array of numbers: {err}") from err
    if array.dtype.kind not in "biuf":
        raise ArgumentTypeError(f"{what}: real numbers are needed, not {x!r}")
    return array


def as_dtype(dtype: Any, what: str = "dtype") -> np.dtype:
    """Return float32 or float64 for ``"FP32"``, ``"float64"``, ``np.float32`` and the like."""
    try:
        found = np.dtype(gb.dtypes.lookup_dtype(dtype).np_type)
    except (TypeError, ValueError, AttributeError) as err:
        raise ArgumentTypeError(f"{what}: {dtype!r} is no dtype; FP32 and FP64 are") from err
    if found not in (np.float32, np.float64):
        raise ArgumentTypeError(f"{what}: inference runs in FP32 or FP64, not {dtype!r}")
    return found


def as_matrix(
    x: MatrixLike,
    *,
    what: str,
    dtype: np.dtype | None = None,
    orientation: Orientation = "rowwise",
    copy: bool = True,
) -> gb.Matrix:
    """Return `x` as a new GraphBLAS matrix.

    Parameters
    ----------
    x : Matrix, SciPy sparse or 2-D ndarray, shape (nrows, ncols)
        Stored zeros (-0.0 too) are dropped; duplicates of a SciPy array are summed.
    what : str
        What to call `x` in an error: ``"layer 3: weights"``.
    dtype : float32 or float64, optional
        Cast to this. By default FP32 and FP64 stay, bool, integers and half precision become FP32.
    orientation : {"rowwise", "columnwise"}
        How the result is held; equal (iso) values stay one value.
    copy : bool
        False empties a ``graphblas.Matrix`` instead of copying it: its arrays become the result's.

    Raises
    ------
    ArgumentTypeError
        `x` is no matrix, or complex.
    ArgumentError
        A value is NaN or infinite, or does not fit the dtype; a SciPy array is corrupt.
    TooLargeError
        There is no room for a pointer per row (rowwise) or column (columnwise).
    """
    nrows, ncols = shape_of(x, what)
    arrays = as_compressed(x, what=what, dtype=dtype, orientation=orientation, copy=copy)
    return import_arrays(arrays, nrows, ncols, orientation)


def as_compressed(
    x: MatrixLike,
    *,
    what: str,
    dtype: np.dtype | None = None,
    orientation: Orientation = "rowwise",
    copy: bool = True,
) -> Compressed:
    """Return the arrays of `x`; parameters and errors are those of `as_matrix`."""
    nrows, ncols = shape_of(x, what)
    along, n = ("row", nrows) if orientation == "rowwise" else ("column", ncols)
    require_room(8 * n, f"{what}: {nrows} x {ncols}: {along} pointers alone")
    if is_graphblas(x):
        arrays = _from_graphblas(x, orientation, copy)
    elif _is_scipy(x):
        try:
            arrays = _from_scipy(x, orientation)
        except (ValueError, TypeError, IndexError) as err:
            raise ArgumentError(f"{what}: a corrupt SciPy array: {err}") from err
    else:
        arrays = _from_numpy(np.asarray(x), orientation)
    arrays = arrays._replace(values=finite(arrays.values, dtype, what))
    if (arrays.values == 0).any():
        C = import_arrays(arrays, nrows, ncols, orientation)
        C = gb.select.valuene(C, arrays.values.dtype.type(0)).new()
        arrays = _from_graphblas(C, orientation, copy=False)
    return arrays


def import_arrays(
    arrays: Compressed,
    nrows: int,
    ncols: int,
    orientation: Orientation,
    *,
    ascending: bool = False,
) -> gb.Matrix:
    """Return the matrix of some arrays, which become GraphBLAS's.

    `ascending` promises that indices ascend within each row or column; else they are sorted later.
    """
    importer = getattr(gb.Matrix.ss, f"import_{_FORMAT[orientation]}")
    return importer(
        nrows=nrows,
        ncols=ncols,
        indptr=arrays.indptr,
        values=arrays.values,
        is_iso=arrays.is_iso,
        take_ownership=True,
        **{_INDICES[orientation]: arrays.indices, _SORTED[orientation]: ascending},
    )


def require_room(needed: int, what: str) -> None:
    """Raise TooLargeError if `needed` bytes are over a quarter of the machine's memory."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Prefetch does not tell
        memory = 2**36
    if needed > memory / 4:
        raise TooLargeError(
            f"{what} need {needed / 2**30:,.0f} GiB; this machine has {memory / 2**30:,.0f}"
        )


def floating(dtype: np.dtype, what: str) -> np.dtype:
    """Return what values of `dtype` become: float64 stays, other real numbers get float32."""
    if dtype.kind not in "bifu" or dtype.itemsize > 8:
        raise ArgumentTypeError(
            f"{what}: values of dtype {dtype}; real numbers of at most 64 bits are needed"
        )
    return np.dtype(np.float64 if dtype.kind == "f" and dtype.itemsize == 8 else np.float32)


def finite(values: np.ndarray, dtype: np.dtype | None, what: str) -> np.ndarray:
    """Return `values` as a new array of `dtype`; refuse NaN, infinities and overflow."""
    own = floating(values.dtype, what)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        bad = values[~np.isfinite(values)][0]
        raise ArgumentError(f"{what}: contains {bad}; every value must be finite")
    dtype = own if dtype is None else dtype
    with np.errstate(over="ignore"):
        cast = values.astype(dtype)  # a copy, whatever the dtype: the caller's array stays its own
    if not np.isfinite(cast).all():
        bad = values[~np.isfinite(cast)][0]
        raise ArgumentError(f"{what}: {bad} does not fit {dtype}")
    return cast


def oriented(A: gb.Matrix, orientation: Orientation) -> gb.Matrix:
    """Return a copy of `A` that is held row-wise (CSR) or column-wise (CSC)."""
    return gb.Matrix.ss.import_any(take_ownership=True, **A.ss.export(_FORMAT[orientation]))


def _from_graphblas(A: gb.Matrix, orientation: Orientation, copy: bool) -> Compressed:
    if isinstance(A, gb.core.matrix.TransposedMatrix):
        A = A.new()
    elif copy:
        A = A.dup()
    arrays = A.ss.export(_FORMAT[orientation], give_ownership=True, sort=True)
    return Compressed(
        arrays["indptr"],
        arrays[_INDICES[orientation]],
        arrays["values"],
        arrays.get("is_iso", False),
    )


def _from_scipy(A: Any, orientation: Orientation) -> Compressed:
    # SciPy's conversions trust the indices, and its check of them tidies up: on a copy.
    if A.format in ("csr", "csc", "bsr"):
        A = A.copy()
        A.check_format(full_check=True)
    else:
        A = A.tocoo(copy=True)  # checked as it is made
    C = A.tocsr() if orientation == "rowwise" else A.tocsc()
    C.sum_duplicates()
    return Compressed(C.indptr.astype(np.uint64), C.indices.astype(np.uint64), C.data, False)


def _from_numpy(A: np.ndarray, orientation: Orientation) -> Compressed:
    along = A if orientation == "rowwise" else A.T
    major, minor = np.nonzero(along)
    indptr = np.zeros(along.shape[0] + 1, np.uint64)
    np.cumsum(np.bincount(major, minlength=along.shape[0]), out=indptr[1:])
    return Compressed(indptr, minor.astype(np.uint64), along[major, minor], False)


def _is_scipy(x: object) -> bool:
    sparse = sys.modules.get("scipy.sparse")
    return sparse is not None and sparse.issparse(x)


def _kind(x: object) -> str:
    return f"{type(x).__module__}.{type(x).__qualname__}".removeprefix("builtins.")
