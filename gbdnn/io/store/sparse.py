"""Sparse matrices in a store: CSR or CSC arrays, described by a binsparse descriptor.

https://graphblas.org/binsparse-specification/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checked_rows import fault_of
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import FormatError

if TYPE_CHECKING:
    from gbdnn.io.store.reader import Reader
    from gbdnn.io.store.writer import Writer

_BINSPARSE = "0.1"


class Description(NamedTuple):
    """A matrix's descriptor in the index: format, shape, dtypes of the arrays."""

    format: str
    shape: tuple[int, int]
    nvals: int
    pointers: str
    indices: str
    values: str
    is_iso: bool


def write_arrays(
    writer: Writer,
    name: str,
    rows: SparseRows,
    form: str,
    shape: tuple[int, int],
    beside: dict[str, np.ndarray] | None = None,
) -> dict[str, Any]:
    """Write the rows (CSR) or columns (CSC) of a matrix, and arrays beside it in the shard.

    Returns the entry in the index.
    """
    nvals, is_iso = rows.nvals, rows.is_iso
    pointers = "uint32" if nvals < 2**32 else "uint64"
    indices = "uint32" if rows.ncols <= 2**32 else "uint64"
    values = rows.values[:1] if is_iso else rows.values
    kind = values.dtype.name
    place = writer.add(
        name,
        {
            "pointers_to_1": rows.indptr.astype(pointers),
            "indices_1": rows.columns.astype(indices),
            "values": values,
            **(beside or {}),
        },
    )
    return {
        "binsparse": {
            "version": _BINSPARSE,
            "format": form,
            "shape": list(shape),
            "number_of_stored_values": nvals,
            "data_types": {
                "pointers_to_1": pointers,
                "indices_1": indices,
                "values": f"iso[{kind}]" if is_iso else kind,
            },
        },
        **place,
    }


def described(entry: dict[str, Any]) -> Description:
    """Return the descriptor of an entry of an index, which has been checked."""
    given = entry["binsparse"]
    types = given["data_types"]
    values = types["values"]
    is_iso = values.startswith("iso[") and values.endswith("]")
    nrows, ncols = given["shape"]
    found = Description(
        given["format"],
        (nrows, ncols),
        given["number_of_stored_values"],
        types["pointers_to_1"],
        types["indices_1"],
        values[4:-1] if is_iso else values,
        is_iso,
    )
    if is_iso and not found.nvals:
        raise FormatError("an iso value of a matrix that stores nothing")
    return found


def read_arrays(
    reader: Reader, entry: dict[str, Any], given: Description, where: str
) -> SparseRows:
    """Return a matrix's rows or columns; checked here, because GraphBLAS imports them unchecked."""
    along, across = given.shape if given.format == "CSR" else given.shape[::-1]
    pointers = reader.array(entry, "pointers_to_1", given.pointers, along + 1, where)
    indices = reader.array(entry, "indices_1", given.indices, given.nvals, where)
    count = 1 if given.is_iso else given.nvals
    values = reader.array(entry, "values", given.values, count, where)
    if fault := fault_of(pointers, indices, across) or _fault_of_values(values):
        raise FormatError(f"{reader.path}: {where}: {fault}")
    return SparseRows(
        pointers.astype(np.uint64),
        indices.astype(np.uint64),
        values.astype(values.dtype.newbyteorder("=")),
        across,
    )


def _fault_of_values(values: np.ndarray) -> str | None:
    if not np.isfinite(values).all():
        return f"a value is {values[~np.isfinite(values)][0]}; every value must be finite"
    return None if values.all() else "a zero is stored"
