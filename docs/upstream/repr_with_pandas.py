"""python-graphblas shows a matrix with pandas 3, whose tables' values are read-only."""

import graphblas as gb

print(gb.Matrix.from_coo([0, 1], [1, 0], [1.0, 2.0]))
