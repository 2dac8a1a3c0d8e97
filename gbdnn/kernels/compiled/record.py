"""The record that describes a layer to compiled code, which reads its fields by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.kernels.addresses import address

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LAYER", "NEAR", "PLAN", "PRODUCT", "filled", "stacked"]

LAYER = np.dtype([
    (name, np.int64)
    for name in (
        "nrows", "ncols", "edges",
        "indptr", "rows", "weights", "bias", "places", "pairs", "limits",  # addresses
        "weight_step", "bias_step",  # 1, or 0 if one number is valid for all
        "paired", "dense",  # whether most columns are in pairs; whether all weights are stored
        "droppable", "checked",  # whether to count activations, and to look for infinite sums
        "panels",
        "first",  # column of the layer that is the first of this record, for single inputs
    )
])  # fmt: skip

PLAN = np.dtype([
    ("table", np.int64),  # address of the layers' records
    ("tidy", np.int64),  # whether to compact the block after the last layer
    ("edge_cost", np.float64),  # of a multiply-add
    ("move_cost", np.float64),  # of moving an activation when a block is compacted
    ("row_cost", np.float64),  # of visiting a row of the block for that
])  # fmt: skip

PRODUCT = np.dtype([
    *(
        (name, np.int64)
        for name in (
            "indptr", "columns", "weights",  # A in CSR format: int64, uint64, and the real type
            "weight_step",  # 1, or 0 if all edges have one weight
            "places",  # row of `start` and of Z for each row of A, int64; 0 if they are equal
            "Y", "stride", "features",  # elements from one row of Y to the next
            "start", "start_stride",  # initial sums; a stride of 0 if they are equal for all rows
            "Z", "z_stride",
        )
    ),
    ("low", np.float64), ("high", np.float64),  # limits of Z
])  # fmt: skip

NEAR = 1 << 16  # most neurons of a layer that single inputs address with uint16


def filled(kind: np.dtype, known: Mapping[str, float | np.ndarray | None]) -> np.ndarray:
    """Return a record of numbers and of addresses of arrays; missing fields are 0."""
    given = (known.get(name) for name in kind.names or ())
    return np.array(tuple(x if isinstance(x, float) else address(x) for x in given), kind)


def stacked(records: Sequence[np.ndarray | None]) -> np.ndarray:
    """Return an array of layers' records; the fields of missing ones are 0."""
    found = np.zeros(len(records), LAYER)
    for k, record in enumerate(records):  # np.array takes fifty times as long
        if record is not None:
            found[k] = record
    return found
