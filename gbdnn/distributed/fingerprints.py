"""Fingerprints of networks and features: by these a run that goes on knows them again.

A store has the checksums of its arrays in its index: that is read, and nothing else. What is in
memory is read in full. Neither names nor times of files count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.distributed.sent import CompactRows
from gbdnn.io.store.index import checksum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.distributed.sent import SentFeatures
    from gbdnn.model.network import Network

__all__ = ["of_features", "of_network"]

_AT_ONCE = 16_384  # inputs


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


def of_features(X: SentFeatures) -> tuple[str, str]:
    """Return the fingerprint of a run's features, and what they are, for people."""
    if X.source is not None:
        start, stop = X.start, X.start + X.nrows
        address = getattr(X.source, "address", None)
        content = repr(X.source) if address is None else address.fingerprint()
        where = "features" if address is None else address.path
        return checksum(f"{content} {start} {stop}".encode()), f"{where}, {X.nrows:,} inputs"
    words = [
        word
        for start in range(0, X.nrows, _AT_ONCE)
        for word in _content(X.rows(start, min(start + _AT_ONCE, X.nrows)))
    ]
    return checksum("\n".join(words).encode()), f"{X.nrows:,} inputs in memory"


def _of_weights(net: Network) -> str:
    """Return the fingerprint of what is read in full; a network keeps it."""
    return checksum("".join(_weights(net)).encode())


def _weights(net: Network) -> Iterator[str]:
    for k, layer in enumerate(net):
        columns = as_columns(layer.W, what=f"layer {k}")
        yield repr((layer.shape, layer.bias_rule, layer.activation, layer.clip))
        for array in (columns.indptr, columns.columns, columns.values, np.asarray(layer.bias)):
            yield f"{array.dtype}{checksum(np.ascontiguousarray(array))}"


def _content(sent: Any) -> list[str]:
    compact = isinstance(sent, CompactRows)
    arrays = [sent.indptr, sent.columns, sent.values] if compact else [sent]
    return [f"{a.dtype}{a.shape}{checksum(np.ascontiguousarray(a))}" for a in arrays]
