"""Sparse deep neural network inference and training in the language of GraphBLAS.

    Y = gbdnn.infer(layers, features)

Importing gbdnn does not initialise GraphBLAS, so ``graphblas.init`` may be called afterwards.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from gbdnn._version import __version__ as __version__
from gbdnn.answers import argmax, categories
from gbdnn.engine.plan import Plan
from gbdnn.engine.stats import LayerStats, per_layer
from gbdnn.errors import GbdnnError
from gbdnn.inference import infer, infer_batches, infer_to_store, plan
from gbdnn.model.layer import Layer
from gbdnn.model.layer_info import LayerInfo
from gbdnn.model.network import Network
from gbdnn.runtime.forks import importing
from gbdnn.serving import CompiledNetwork, compile  # noqa: A004

if TYPE_CHECKING:
    from gbdnn.challenge.machine import show_versions
    from gbdnn.io.networks import load, save
    from gbdnn.thread_scaling.measure import scaling
    from gbdnn.training.train import train

__all__ = [
    "CompiledNetwork",
    "GbdnnError",
    "Layer",
    "LayerInfo",
    "LayerStats",
    "Network",
    "Plan",
    "argmax",
    "categories",
    "compile",
    "infer",
    "infer_batches",
    "infer_to_store",
    "load",
    "per_layer",
    "plan",
    "save",
    "scaling",
    "show_versions",
    "train",
]

_SUBPACKAGES = (
    "challenge",
    "distributed",
    "errors",
    "gallery",
    "graph",
    "io",
    "sklearn",
    "thread_scaling",
    "torch",
    "training",
    "viz",
)
_LAZY = {
    "load": "gbdnn.io.networks",
    "save": "gbdnn.io.networks",
    "scaling": "gbdnn.thread_scaling.measure",
    "show_versions": "gbdnn.challenge.machine",
    "train": "gbdnn.training.train",
}


def __getattr__(name: str) -> Any:
    """Import subpackages and some functions on first access."""
    with importing:
        if name in _SUBPACKAGES:
            return importlib.import_module(f"gbdnn.{name}")
        if name in _LAZY:
            return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gbdnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names only, without subpackages whose package is not installed."""
    missing = {each for each in ("sklearn", "torch") if importlib.util.find_spec(each) is None}
    return sorted({*__all__, *_SUBPACKAGES, "__version__"} - missing)
