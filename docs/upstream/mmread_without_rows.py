"""SciPy reads a Matrix Market array without rows: the process ends by signal 8."""

import io

import scipy.io

text = b"%%MatrixMarket matrix array real general\n0 3\n"
print(scipy.io.mmread(io.BytesIO(text)).shape)
