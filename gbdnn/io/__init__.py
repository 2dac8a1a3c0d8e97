"""Reading and writing: stores, data sets, challenge files, SciPy, Matrix Market, PyTorch, ONNX."""

from gbdnn.io.challenge.network import iter_layers, write_network
from gbdnn.io.challenge.tsv import read_categories, read_tsv, write_categories, write_tsv
from gbdnn.io.conversion import convert
from gbdnn.io.datasets import read_features, read_idx, read_labels
from gbdnn.io.frameworks.matrix_market import read_matrix_market, write_matrix_market
from gbdnn.io.frameworks.onnx import read_onnx, write_onnx
from gbdnn.io.frameworks.scipy import to_scipy
from gbdnn.io.frameworks.torch import from_torch, read_torch, to_torch, write_torch
from gbdnn.io.store import StoredFeatures, open_features, write_features

__all__ = [
    "StoredFeatures",
    "convert",
    "from_torch",
    "iter_layers",
    "open_features",
    "read_categories",
    "read_features",
    "read_idx",
    "read_labels",
    "read_matrix_market",
    "read_onnx",
    "read_torch",
    "read_tsv",
    "to_scipy",
    "to_torch",
    "write_categories",
    "write_features",
    "write_matrix_market",
    "write_network",
    "write_onnx",
    "write_torch",
    "write_tsv",
]
__dir__ = __all__.copy  # dir() lists the public names only
