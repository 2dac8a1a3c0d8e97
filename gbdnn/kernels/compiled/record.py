"""What compiled code knows of a layer: a row of integers, most of them addresses."""

from __future__ import annotations

__all__ = [
    "AHEAD",
    "BIAS",
    "BIAS_STEP",
    "CHECKED",
    "DENSE",
    "DROPPABLE",
    "EDGES",
    "FETCHED",
    "FIELDS",
    "INDPTR",
    "LIMITS",
    "NCOLS",
    "NEAR",
    "NROWS",
    "PAIRED",
    "PAIRS",
    "PANELS",
    "PLACES",
    "ROWS",
    "WEIGHTS",
    "WEIGHT_STEP",
]

FIELDS = (
    "NROWS", "NCOLS", "EDGES", "INDPTR", "ROWS", "WEIGHTS", "WEIGHT_STEP", "BIAS", "BIAS_STEP",
    "PLACES", "PAIRS", "PAIRED", "LIMITS", "DROPPABLE", "DENSE",
    "CHECKED", "PANELS", "FETCHED",
)  # fmt: skip
(
    NROWS, NCOLS, EDGES, INDPTR, ROWS, WEIGHTS, WEIGHT_STEP, BIAS, BIAS_STEP,
    PLACES, PAIRS, PAIRED, LIMITS, DROPPABLE, DENSE,
    CHECKED, PANELS, FETCHED,
) = range(len(FIELDS))  # fmt: skip

NEAR = 1 << 16  # neurons of a layer whose numbers take two bytes, where single inputs read them
AHEAD = 8  # edges: so long before they are read, rows are fetched, where they are
