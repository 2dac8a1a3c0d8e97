"""The functions of GraphBLAS for compiled kernels: a record of pointers to them.

``with_graphblas(dtype)`` returns the compiled functions, after it has passed them the library that
python-graphblas has loaded (``graphblas.h``). `handle` is what C receives for a matrix; the caller
keeps the matrix as long as C uses it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from gbdnn.errors import MissingPackageError
from gbdnn.kernels.compiled.loading import of_any_processor
from gbdnn.kernels.compiled.record import Record, constant, untyped
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    import numpy as np

    from gbdnn.kernels.compiled.loading import Functions

__all__ = ["contexts", "handle", "raise_error", "record_for", "with_graphblas"]

_FUNCTIONS = {
    "mxm": "GrB_mxm",
    "select": "GrB_Matrix_select_{}",
    "apply": "GrB_Matrix_apply_BinaryOp2nd_{}",
    "eWiseAdd": "GrB_Matrix_eWiseAdd_BinaryOp",
    "assign": "GrB_Matrix_assign_{}",
    "extract": "GrB_Matrix_extract",
    "reduce": "GrB_Matrix_reduce_Monoid",
    "Matrix_new": "GrB_Matrix_new",
    "Matrix_free": "GrB_Matrix_free",
    "Matrix_nvals": "GrB_Matrix_nvals",
    "import_rows": "GrB_Matrix_import_{}",
    "unpack_rows": "GxB_Matrix_unpack_CSR",
    "pack_rows": "GxB_Matrix_pack_CSR",
    "pack_full": "GxB_Matrix_pack_FullC",
    "unpack_full": "GxB_Matrix_unpack_FullC",
    "Vector_new": "GrB_Vector_new",
    "Vector_free": "GrB_Vector_free",
    "Vector_nvals": "GrB_Vector_nvals",
    "extractTuples": "GrB_Vector_extractTuples_{}",
    "engage": "GxB_Context_engage",
    "disengage": "GxB_Context_disengage",
}
_OPERATORS = {
    "semiring": "plus_times any_plus any_second",
    "binary": "plus min first",
    "indexunary": "valuegt valuene valuele valuege",
}


def with_graphblas(dtype: np.dtype) -> Functions:
    """Return the compiled functions for a dtype, which can call GraphBLAS.

    Raises
    ------
    MissingPackageError
        This installation has no library.
    """
    library = of_any_processor(dtype)
    if library is None:
        raise MissingPackageError(
            "this installation has no compiled code; a checkout that is used in place needs"
            " python gbdnn/kernels/compiled/build.py; engine='lagraph' needs none"
        )
    record_for(library, dtype)
    return library


@cache
def record_for(functions: Functions, dtype: np.dtype) -> Record:
    """Pass GraphBLAS to a library; return the record."""
    from suitesparse_graphblas import ffi, lib

    name = gb.dtypes.lookup_dtype(dtype).name

    allocate, free = ffi.new("void**"), ffi.new("void**")
    lib.GxB_Global_Option_get_FUNCTION(lib.GxB_MALLOC_FUNCTION, allocate)
    lib.GxB_Global_Option_get_FUNCTION(lib.GxB_FREE_FUNCTION, free)
    operators = {"type": gb.dtypes.lookup_dtype(dtype), "any": gb.monoid.any[name]}
    for family, names in _OPERATORS.items():
        for operator in names.split():
            operators[operator] = getattr(getattr(gb, family), operator)[name]
    record = Record(
        "graphblas", dtype, RANGE=lib.GxB_RANGE, CSR=lib.GrB_CSR_FORMAT,
        allocate=untyped(allocate[0]), release=untyped(free[0]), ALL=untyped(lib.GrB_ALL),
        **{k: untyped(ffi.addressof(lib, of.format(name))) for k, of in _FUNCTIONS.items()},
        **{k: untyped(operator._carg) for k, operator in operators.items()},
    )  # fmt: skip
    functions.use_graphblas(record)
    return record


def handle(A: gb.Matrix) -> Any:
    """Return what C receives for a matrix."""
    return untyped(A.gb_obj[0])


def contexts(nthreads: int, chunk: int | None = None) -> Record:
    """Return the record of a Context for each thread of a call by this thread."""
    one = gb.ss.Context(engage=False, nthreads=nthreads, chunk=chunk)
    # Private names: nothing else returns the engaged Context, or what C receives for an object.
    before = gb.core.ss.context.threadlocal.context
    record = Record("contexts", None, one=untyped(one._carg), before=untyped(before._carg))
    record.kept[None] = one, before
    return record


def raise_error(info: int) -> None:
    """Raise an exception of python-graphblas for an error of GraphBLAS."""
    from suitesparse_graphblas import lib

    if info == constant("NOT_IN_PLACE"):
        raise MissingPackageError(
            "this build of GraphBLAS does not compute products in place; run pip install"
            " 'suitesparse-graphblas>=9.4,<10', or use engine='fused' or 'sparse'"
        )
    if info == lib.GrB_OUT_OF_MEMORY:
        raise gb.exceptions.OutOfMemory("GraphBLAS has no memory for an operation")
    raise gb.exceptions.Panic(f"GraphBLAS's error {info}")  # its text was a matrix's
