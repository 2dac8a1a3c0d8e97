"""Categories in a store: one array of 64-bit integers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.io.store.writer import Writer

if TYPE_CHECKING:
    import os

    from gbdnn.io.store.reader import Reader

__all__ = ["read_categories", "write_categories"]


def write_categories(rows: np.ndarray, path: str | os.PathLike[str]) -> None:
    """Write a 1-D array of integers."""
    if rows.dtype.kind not in "iu":
        raise ArgumentTypeError(f"categories: dtype {rows.dtype}; ids are integers")
    ids = np.array(rows, np.int64)  # not a masked array, not a view
    if rows.dtype.kind == "u" and (ids < 0).any():
        raise ArgumentError(f"categories: {rows.max()} is no id; ids are below 2**63")
    with Writer(path) as writer:
        entry = writer.add("categories", {"ids": ids})
        writer.finish("categories", {"count": len(ids), "categories": entry})


def read_categories(reader: Reader) -> np.ndarray:
    """Return the array."""
    entry, count = reader.parsed(
        "categories", lambda: (reader.index["categories"], int(reader.index["count"]))
    )
    return reader.array(entry, "ids", "int64", count, "categories").astype(np.int64)
