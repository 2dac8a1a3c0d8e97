"""Fingerprints of networks: by these a run that goes on knows them again.

A store has the checksums of its arrays in its index: that is read, and nothing else. What is in
memory is read in full. Neither names nor times of files count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.io.store.index import checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.model.network import Network

__all__ = ["of_network"]


def of_network(net: Network) -> tuple[str, str]:
    """Return a network's fingerprint, and what it is, for people."""
    count = "1 layer" if len(net) == 1 else f"{len(net)} layers"
    source = net.source
    if source is None:
        return net.prepared(_of_weights), f"a network of {count} in memory"
    address = getattr(source.reopen, "address", None)
    content = repr(source.reopen) if address is None else address.fingerprint()
    where = "a network" if address is None else address.path
    named = checksum(repr((content, source.layers, source.dtype)).encode())
    return named, f"{where}, {count}"


def _of_weights(net: Network) -> str:
    """Return the fingerprint of what is read in full; a network keeps it."""
    return checksum("".join(_weights(net)).encode())


def _weights(net: Network) -> Iterator[str]:
    for k, layer in enumerate(net):
        columns = as_columns(layer.W, what=f"layer {k}")
        yield repr((layer.shape, layer.bias_rule, layer.activation, layer.clip))
        for array in (columns.indptr, columns.columns, columns.values, np.asarray(layer.bias)):
            yield f"{array.dtype}{checksum(np.ascontiguousarray(array))}"
