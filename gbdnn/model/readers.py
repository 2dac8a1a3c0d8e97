"""Readers: what a lazy network calls to read its layers.

A reader is called with the number of a layer, repeatedly and from any thread, and returns the
layer.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gbdnn.arrays.threads import available
from gbdnn.errors import ArgumentTypeError, FormatError, GbdnnError, ShapeError
from gbdnn.model.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

    from gbdnn.model.layer_info import LayerInfo

__all__ = ["CastReader", "CheckedReader", "LayerReader", "SliceReader", "read_all"]

LARGE = 1 << 17
"""Edges of a layer from which on reading it takes longer than the Python code around it."""


class LayerReader(Protocol):
    """What reads the layers of a network."""

    def __call__(self, k: int, /) -> Layer:
        """Return layer `k`."""
        ...


class CheckedReader(NamedTuple):
    """A reader whose layers are compared with what is known of them."""

    infos: tuple[LayerInfo, ...]
    read: LayerReader

    def __call__(self, k: int, /) -> Layer:
        """Return layer `k`; raise an error that says in what it differs from what is known."""
        layer = self.read(k)
        if not isinstance(layer, Layer):
            raise ArgumentTypeError(
                f"layer {k}: a Layer is to be read, not {type(layer).__qualname__}"
            )
        if difference := self.infos[k].difference(layer):
            kind = FormatError if layer.shape == self.infos[k].shape else ShapeError
            raise kind(f"layer {k}: was read with {difference}")
        return layer


class SliceReader(NamedTuple):
    """Some layers of a reader: the layers of a slice."""

    read: LayerReader
    layers: range

    def __call__(self, k: int, /) -> Layer:
        """Return layer `k` of the slice."""
        return self.read(self.layers[k])


class CastReader(NamedTuple):
    """A reader's layers in FP32 or FP64."""

    read: LayerReader
    dtype: np.dtype

    def __call__(self, k: int, /) -> Layer:
        """Return layer `k`, cast."""
        layer = self.read(k)
        try:
            return layer.astype(self.dtype)
        except GbdnnError as err:
            raise type(err)(f"layer {k}: {err}") from err


def read_all(
    read: LayerReader, infos: Sequence[LayerInfo], progress: Callable[[int, int], object] | None
) -> list[Layer]:
    """Return all layers; large ones are read on the threads that GraphBLAS may use."""
    count = len(infos)
    large = sum(info.edges for info in infos) >= count * LARGE
    workers = max(1, min(available(), count)) if large else 1
    layers: list[Layer] = []
    with ThreadPoolExecutor(workers) as pool:
        for layer in (pool.map if workers > 1 else map)(read, range(count)):
            layers.append(layer)
            if progress is not None:
                progress(len(layers), count)
    return layers
