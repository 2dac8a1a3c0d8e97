"""Readers of lazy networks.

A reader is called with the number of a layer and returns the layer, repeatedly and from any thread.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeAlias

from gbdnn.errors import FormatError, ShapeError, require_kind
from gbdnn.model.layer import Layer
from gbdnn.runtime.threads import available, unbind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.model.layer_info import LayerInfo

LARGE = 1 << 17
"""Layers with more edges take longer to read than the Python code around the reading."""


LayerReader: TypeAlias = "Callable[[int], Layer]"


def read_checked(infos: Sequence[LayerInfo], read: LayerReader, k: int) -> Layer:
    """Return layer `k`; raise an error if it differs from its known properties."""
    layer = read(k)
    require_kind(layer, Layer, f"layer {k}: read must return a Layer")
    if difference := infos[k].difference(layer):
        kind = FormatError if layer.shape == infos[k].shape else ShapeError
        raise kind(f"layer {k}: read returned {difference}")
    return layer


def read_all(
    read: LayerReader, infos: Sequence[LayerInfo], progress: Callable[[int, int], object] | None
) -> list[Layer]:
    """Return all layers; large ones are read on GraphBLAS's number of threads."""
    count = len(infos)
    large = sum(info.edges for info in infos) >= count * LARGE
    workers = max(1, min(available(), count)) if large else 1
    layers: list[Layer] = []
    with ThreadPoolExecutor(workers, initializer=unbind) as pool:
        for layer in (pool.map if workers > 1 else map)(read, range(count)):
            layers.append(layer)
            if progress is not None:
                progress(len(layers), count)
    return layers
