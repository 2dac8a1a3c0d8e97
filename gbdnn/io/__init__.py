"""Stores, the challenge's files, IDX images; SciPy, Matrix Market, PyTorch, ONNX."""

from gbdnn.io._challenge import read_categories, read_tsv, write_categories, write_tsv
from gbdnn.io._idx import read_idx
from gbdnn.io._layout import find_categories, find_features, find_layers, find_neurons
from gbdnn.io._matrix_market import read_matrix_market, write_matrix_market
from gbdnn.io._network import iter_layers, read_network, write_network
from gbdnn.io._npz import read_npz, write_npz
from gbdnn.io._onnx import read_onnx, write_onnx
from gbdnn.io._scipy import from_scipy, to_scipy
from gbdnn.io._store import (
    StoredFeatures,
    load,
    open_features,
    require_storable,
    save,
    store_kind,
    write_features,
)
from gbdnn.io._torch import from_torch, to_torch
from gbdnn.io._torch_file import read_torch, write_torch
from gbdnn.io._whole import require_writable, whole_file, whole_folder

__all__ = [
    "StoredFeatures",
    "find_categories",
    "find_features",
    "find_layers",
    "find_neurons",
    "from_scipy",
    "from_torch",
    "iter_layers",
    "load",
    "open_features",
    "read_categories",
    "read_idx",
    "read_matrix_market",
    "read_network",
    "read_npz",
    "read_onnx",
    "read_torch",
    "read_tsv",
    "require_storable",
    "require_writable",
    "save",
    "store_kind",
    "to_scipy",
    "to_torch",
    "whole_file",
    "whole_folder",
    "write_categories",
    "write_features",
    "write_matrix_market",
    "write_network",
    "write_npz",
    "write_onnx",
    "write_torch",
    "write_tsv",
]
