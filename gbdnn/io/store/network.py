"""Networks in a store: one entry of the index per layer, its weights as CSC in a shard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.errors import FormatError, require_kind
from gbdnn.io.store.sparse import Description, described, read_arrays, write_arrays
from gbdnn.io.store.writer import Writer
from gbdnn.model.layer import Layer
from gbdnn.model.layer_info import LayerInfo
from gbdnn.model.network import Network, require_fit

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from gbdnn.io.store.reader import Address, Reader


def write_network(
    layers: Iterable[Layer],
    path: str | os.PathLike[str],
    progress: Callable[[int, int | None], object] | None,
) -> None:
    """Write layers one by one; none is referenced afterwards."""
    count = len(layers) if isinstance(layers, Network | list | tuple) else None
    entries: list[dict[str, Any]] = []
    with Writer(path) as writer:
        to = LayerWriter(writer)
        for layer in layers:
            entries.append(to.write(layer))
            del layer
            if progress is not None:
                progress(len(entries), count)
        writer.finish("network", {"layers": entries})


class LayerWriter:
    """Writes layers, each of which fits the one before it.

    Parameters
    ----------
    writer : Writer
        The store.
    entries : sequence of dict, optional
        What the index says of the layers that it has already.
    """

    def __init__(self, writer: Writer, entries: Sequence[dict[str, Any]] = ()) -> None:
        self._writer, self._count = writer, len(entries)
        self._before = _parsed(entries[-1])[1] if entries else None

    def write(self, layer: Layer) -> dict[str, Any]:
        """Write the next layer, and return its entry in the index; `layer` is not kept."""
        k = self._count
        require_kind(layer, Layer, f"layer {k}: a Layer is needed")
        if self._before is not None:
            require_fit(k, self._before, layer)
        self._before = layer.info
        self._count += 1
        return _write_layer(self._writer, k, layer)


def read_network(reader: Reader) -> Network:
    """Return the network; layers are read when they are asked for."""
    source = _StoredLayers(reader)
    reopen = _Reopen(reader.address)
    return reader.parsed("layers", lambda: Network.lazy(source.infos, source, reopen=reopen))


@dataclass(frozen=True, slots=True)
class _Reopen:
    """Opens a network's store again, in whatever process."""

    address: Address

    def __call__(self) -> Network:
        return read_network(self.address.reader())


class _StoredLayers:
    """A LayerReader of a store."""

    reads_anew = True

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._entries: list[dict[str, Any]] = reader.index["layers"]
        self._given: list[Description] = []
        self.infos: list[LayerInfo] = []
        for k in range(len(self._entries)):
            reader.parsed(f"layer {k}", partial(self._parse, k))

    def __call__(self, k: int, /) -> Layer:
        info, where = self.infos[k], f"layer {k}"
        columns = read_arrays(self._reader, self._entries[k], self._given[k], where)
        bias = self._entries[k]["bias"]
        bias = self._bias(k) if isinstance(bias, dict) else float(info.dtype.type(bias))
        layer = Layer.assembled(info, columns, bias)
        if difference := info.difference(layer):
            raise FormatError(f"{self._reader.path}: {where}: was read with {difference}")
        return layer

    def _parse(self, k: int) -> None:
        """Take what the index says of layer `k`."""
        given, info = _parsed(self._entries[k])
        self._given.append(given)
        self.infos.append(info)

    def _bias(self, k: int) -> np.ndarray:
        """Return the bias vector of layer `k`."""
        where, dtype, ncols = f"layer {k}", self.infos[k].dtype, self.infos[k].ncols
        vector = self._reader.array(self._entries[k], "bias", dtype, ncols, where)
        if not np.isfinite(vector).all():
            raise FormatError(f"{self._reader.path}: {where}: the bias is not finite")
        return vector.astype(dtype)


def _parsed(entry: dict[str, Any]) -> tuple[Description, LayerInfo]:
    """Return what an entry of the index says of a layer."""
    given = described(entry)
    bias: Any = entry["bias"]
    if isinstance(bias, dict):
        low, high = float(bias["lowest"]), float(bias["highest"])
    else:
        low = high = float(bias)
    gain = entry["gain"]
    return given, LayerInfo(
        given.shape,
        edges=given.nvals,
        gain=math.inf if gain is None else gain,
        dtype=np.dtype(given.values),
        lowest_bias=low,
        highest_bias=high,
        bias_rule=entry["bias_rule"],
        activation=entry["activation"],
        clip=entry["clip"],
    )


def _write_layer(writer: Writer, k: int, layer: Layer) -> dict[str, Any]:
    """Write a layer and return its entry in the index."""
    columns = as_columns(layer.W, what=f"layer {k}")
    bias = layer.bias
    beside = {"bias": bias} if isinstance(bias, np.ndarray) else None
    return {
        **write_arrays(writer, f"layer.{k}", columns, "CSC", layer.shape, beside),
        "bias": {"lowest": layer.lowest_bias, "highest": layer.highest_bias} if beside else bias,
        "bias_rule": layer.bias_rule,
        "activation": layer.activation,
        "clip": layer.clip,
        "gain": layer.gain if math.isfinite(layer.gain) else None,
    }
