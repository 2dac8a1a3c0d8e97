"""Select the entries of an FP32 matrix that are greater than a Python float."""

import graphblas as gb
import numpy as np

A = gb.Matrix.from_dense(np.array([[0.0625, 0.25]], np.float32))
print(gb.select.valuegt(A, 0.125).new().to_coo()[2])  # [0.0625 0.25]
print(gb.select.valuegt(A, np.float32(0.125)).new().to_coo()[2])  # [0.25]
