"""Files: stores, the challenge's tab-separated layout, and IDX images."""

from gbdnn.io._challenge import read_categories, read_tsv, write_categories, write_tsv
from gbdnn.io._idx import read_idx
from gbdnn.io._layout import find_categories, find_features, find_layers, find_neurons
from gbdnn.io._network import iter_layers, read_network, write_network
from gbdnn.io._store import StoredFeatures, load, open_features, save, write_features
from gbdnn.io._whole import require_writable, whole_file

__all__ = [
    "StoredFeatures",
    "find_categories",
    "find_features",
    "find_layers",
    "find_neurons",
    "iter_layers",
    "load",
    "open_features",
    "read_categories",
    "read_idx",
    "read_network",
    "read_tsv",
    "require_writable",
    "save",
    "whole_file",
    "write_categories",
    "write_features",
    "write_network",
    "write_tsv",
]
