"""A KeyboardInterrupt during an import: NumPy and GraphBLAS both free the array."""

from contextlib import suppress

import graphblas as gb
import numpy as np

gb.Matrix(float, 1, 1)  # initialises GraphBLAS


def interrupted(array):
    raise KeyboardInterrupt


gb.core.ss.matrix.unclaim_buffer = interrupted
with suppress(KeyboardInterrupt):
    gb.Matrix.ss.import_fullr(np.ones((1000, 1000)), take_ownership=True)
