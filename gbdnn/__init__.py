"""Sparse deep neural network inference and training in the language of GraphBLAS.

    Y = gbdnn.infer(layers, features)

Importing gbdnn does not initialise GraphBLAS: ``graphblas.init`` may still follow.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from gbdnn._version import __version__ as __version__
from gbdnn.answers import argmax, categories
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    DivergenceError,
    ForkError,
    FormatError,
    GbdnnError,
    MissingFileError,
    MissingPackageError,
    NonFiniteError,
    OutputError,
    RankError,
    ReadError,
    ShapeError,
    TooLargeError,
    WorkerError,
)
from gbdnn.gallery.radixnet import radixnet
from gbdnn.inference import infer, infer_batches, infer_to_store
from gbdnn.model.layer import Layer
from gbdnn.model.layer_info import LayerInfo
from gbdnn.model.network import Network
from gbdnn.serving import CompiledNetwork, compile  # noqa: A004

if TYPE_CHECKING:
    from gbdnn.challenge.machine import show_versions
    from gbdnn.distributed.mpi.pipeline import pipeline
    from gbdnn.io import load, save
    from gbdnn.training.train import train

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CompiledNetwork",
    "DivergenceError",
    "ForkError",
    "FormatError",
    "GbdnnError",
    "Layer",
    "LayerInfo",
    "LayerStats",
    "MissingFileError",
    "MissingPackageError",
    "Network",
    "NonFiniteError",
    "OutputError",
    "RankError",
    "ReadError",
    "ShapeError",
    "TooLargeError",
    "WorkerError",
    "argmax",
    "categories",
    "compile",
    "infer",
    "infer_batches",
    "infer_to_store",
    "load",
    "per_layer",
    "pipeline",
    "radixnet",
    "save",
    "show_versions",
    "train",
]

_ROOMS = ("challenge", "distributed", "gallery", "graph", "io", "torch", "training", "viz")


def __getattr__(name: str) -> Any:
    """Import the rooms beside inference, and some names, when they are first asked for."""
    if name in _ROOMS:
        return importlib.import_module(f"gbdnn.{name}")
    if name == "images":
        return importlib.import_module("gbdnn.gallery.images")
    if name in ("load", "save"):
        return getattr(importlib.import_module("gbdnn.io"), name)
    if name == "pipeline":
        return importlib.import_module("gbdnn.distributed.mpi.pipeline").pipeline
    if name == "show_versions":
        return importlib.import_module("gbdnn.challenge.machine").show_versions
    if name == "train":
        return importlib.import_module("gbdnn.training.train").train
    raise AttributeError(f"module 'gbdnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Show what is public, and that alone; `gbdnn.torch` where PyTorch is installed."""
    missing = set() if importlib.util.find_spec("torch") else {"torch"}
    return sorted({*__all__, *_ROOMS, "__version__", "images"} - missing)
