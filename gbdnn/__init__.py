"""Sparse deep neural network inference in the language of GraphBLAS.

    Y = gbdnn.infer(layers, features)

Importing gbdnn does not initialise GraphBLAS: ``graphblas.init`` may still follow.
"""

import importlib
from types import ModuleType

from gbdnn.answers import argmax, categories
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    GbdnnError,
    MissingFileError,
    MissingPackageError,
    NonFiniteError,
    OutputError,
    ShapeError,
    TooLargeError,
)
from gbdnn.inference import infer
from gbdnn.layer import Layer
from gbdnn.metrics import LayerStats, edge_rate, per_layer
from gbdnn.network import Network
from gbdnn.radixnet import radix_layers, radixnet

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "FormatError",
    "GbdnnError",
    "Layer",
    "LayerStats",
    "MissingFileError",
    "MissingPackageError",
    "Network",
    "NonFiniteError",
    "OutputError",
    "ShapeError",
    "TooLargeError",
    "argmax",
    "categories",
    "edge_rate",
    "infer",
    "per_layer",
    "radix_layers",
    "radixnet",
]

__version__ = "0.1.0.dev0"


def __getattr__(name: str) -> ModuleType:
    """Import ``gbdnn.images``, ``gbdnn.io`` and ``gbdnn.viz`` when they are first asked for."""
    if name in ("images", "io", "viz"):
        return importlib.import_module(f"gbdnn.{name}")
    raise AttributeError(f"module 'gbdnn' has no attribute {name!r}")
