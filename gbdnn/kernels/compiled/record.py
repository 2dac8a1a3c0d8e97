"""Fields of the record that describes a layer to compiled code: integers, mostly addresses."""

from __future__ import annotations

FIELDS = (
    "NROWS", "NCOLS", "EDGES", "INDPTR", "ROWS", "WEIGHTS", "WEIGHT_STEP", "BIAS", "BIAS_STEP",
    "PLACES", "PAIRS", "PAIRED", "LIMITS", "DROPPABLE", "DENSE",
    "CHECKED", "PANELS", "FIRST",
)  # fmt: skip
(
    NROWS, NCOLS, EDGES, INDPTR, ROWS, WEIGHTS, WEIGHT_STEP, BIAS, BIAS_STEP,
    PLACES, PAIRS, PAIRED, LIMITS, DROPPABLE, DENSE,
    CHECKED, PANELS, FIRST,
) = range(len(FIELDS))  # fmt: skip

NEAR = 1 << 16  # most neurons of a layer that single inputs address with uint16

__all__ = ["FIELDS", "NEAR", *FIELDS]
