"""Fields of the records that describe a training run and its layers to compiled code.

Most are addresses of arrays that `gbdnn.kernels.steps` and `gbdnn.kernels.trainable` own.
"""

from __future__ import annotations

_JOB = (
    "LAYERS", "Y_RECORDS", "D_RECORDS", "EDGE_RECORDS", "SHARES", "SHARE_LINES", "STRIDE",
    "Y_BLOCKS", "D_BLOCKS", "LIMITS", "BATCH", "COUNT", "X", "X_ROW_STRIDE",
    "X_COLUMN_STRIDE", "INDICES", "TARGETS", "SAMPLE_WEIGHTS", "LOSS", "LOSSES", "HITS",
    "OPTIMIZER", "RATES", "CONSTANTS", "BARRIER", "STOPPED", "THREADS", "PASSES",
)  # fmt: skip
(
    LAYERS, Y_RECORDS, D_RECORDS, EDGE_RECORDS, SHARES, SHARE_LINES, STRIDE,
    Y_BLOCKS, D_BLOCKS, LIMITS, BATCH, COUNT, X, X_ROW_STRIDE,
    X_COLUMN_STRIDE, INDICES, TARGETS, SAMPLE_WEIGHTS, LOSS, LOSSES, HITS,
    OPTIMIZER, RATES, CONSTANTS, BARRIER, STOPPED, THREADS, PASSES,
) = range(len(_JOB))  # fmt: skip

_EDGES = (
    "NROWS", "NCOLS", "EDGES", "INDPTR", "ROWS", "PLACES", "WEIGHTS", "GRADIENT", "FIRST", "SECOND",
    "BIAS", "BIAS_GRADIENT", "BIAS_FIRST", "BIAS_SECOND", "TRANSPOSED", "TRANSPOSED_EDGES", "DENSE",
    "CUTS", "SQUARES", "PANELS",
)  # fmt: skip
(
    NROWS, NCOLS, EDGES, INDPTR, ROWS, PLACES, WEIGHTS, GRADIENT, FIRST, SECOND,
    BIAS, BIAS_GRADIENT, BIAS_FIRST, BIAS_SECOND, TRANSPOSED, TRANSPOSED_EDGES, DENSE,
    CUTS, SQUARES, PANELS,
) = range(len(_EDGES))  # fmt: skip

JOB_FIELDS, EDGE_FIELDS = _JOB, _EDGES

CROSS_ENTROPY, SQUARED_ERROR = range(2)  # losses
SGD, NESTEROV, ADAM = range(3)  # optimizers

# Passes of a call, a sum. A loss or an optimizer in NumPy runs between two calls of one minibatch.
FORWARD, LOSS_GRADIENT, BACKWARD, UPDATE = 1, 2, 4, 8
