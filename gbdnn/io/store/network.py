"""Networks in a store: an entry of the index per layer, with weights by columns in a shard."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.errors import FormatError, naming
from gbdnn.io.formats import Format
from gbdnn.io.reading import valid_fields
from gbdnn.io.store.folder import INDEX, Reader, finish, writing
from gbdnn.io.store.shards import read_rows, write_rows
from gbdnn.model.layer import Layer
from gbdnn.model.layer_info import LayerInfo
from gbdnn.model.network import Network, require_fit

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from gbdnn.io.store.folder import Address
    from gbdnn.io.store.shards import ShardWriter

__all__ = ["STORE", "read_network", "write_network"]

_FIELDS = [field.name for field in fields(LayerInfo)]


def write_network(
    layers: Iterable[Any],
    path: str | os.PathLike[str],
    progress: Callable[[int, int | None], object] | None = None,
    count: int | None = None,
    *,
    replace: bool = False,
) -> None:
    """Write layers one by one, without keeping references."""
    if isinstance(layers, Network | list | tuple):
        count = len(layers)
    entries: list[dict[str, Any]] = []
    before = None
    with writing(path, replace=replace) as writer:
        for layer in layers:
            k = len(entries)
            if not isinstance(layer, Layer):
                with naming(f"layer {k}"):
                    layer = Layer(layer)
            if before is not None:
                require_fit(k, before, layer)
            before = layer.info
            entries.append(_written(writer, k, layer))
            del layer
            if progress is not None:
                progress(k + 1, count)
        finish(writer, "network", {"layers": entries})


def read_network(reader: Reader) -> Network:
    """Return the lazy network in a store."""
    reader.require("network")
    with valid_fields(reader.path / INDEX):
        layers = _StoredLayers(reader)
        return Network.lazy(layers.infos, layers, reopen=_Reopen(reader.address))


@dataclass(frozen=True, slots=True)
class _Reopen:
    """Opens a network's store in any process."""

    address: Address

    def __call__(self) -> Network:
        return read_network(self.address.reader())

    def content(self) -> str:
        """Return the hash of the store's content."""
        return self.address.content()


class _StoredLayers:
    """A LayerReader of a store."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._entries: list[dict[str, Any]] = reader.index["layers"]
        self.infos = [_info(entry) for entry in self._entries]

    def __call__(self, k: int, /) -> Layer:
        info, entry, where = self.infos[k], self._entries[k], f"layer {k}"
        columns = read_rows(self._reader.shards, entry, info.shape[::-1], info.edges, where)
        bias: Any = entry.get("bias")
        if bias is None:
            (bias,) = self._reader.shards.arrays(entry, ["bias"], where)
        if columns.dtype != info.dtype or np.size(bias) not in (1, info.ncols):
            raise FormatError(f"{self._reader.path}: {where}: the shard and the index differ")
        layer = Layer.assembled(info, columns, bias)
        if difference := info.difference(layer):
            raise FormatError(
                f"{self._reader.path}: {where}: the shard and the index differ: {difference}"
            )
        return layer


def _written(writer: ShardWriter, k: int, layer: Layer) -> dict[str, Any]:
    """Write a layer, and return its entry in the index."""
    columns = as_columns(layer.W, what=f"layer {k}")
    told = {name: getattr(layer, name) for name in _FIELDS} | layer.unrounded
    told["dtype"] = layer.dtype.name
    told["gain"] = layer.gain if math.isfinite(layer.gain) else None
    bias = layer.given_bias
    vector = {"bias": bias} if isinstance(bias, np.ndarray) else {}
    told["bias"] = None if vector else bias
    return {**write_rows(writer, f"layer.{k}", columns, **vector), **told}


def _info(entry: dict[str, Any]) -> LayerInfo:
    told = {name: entry[name] for name in _FIELDS}
    return LayerInfo(**{**told, "gain": math.inf if told["gain"] is None else told["gain"]})


STORE = Format(
    name="store",
    read=lambda path, **_: read_network(Reader(path)),
    write=write_network,
    options="lazy verify",
    mark=r"index\.json",
)
