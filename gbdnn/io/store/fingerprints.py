"""Content hashes, which detect damage and identify runs.

Stores are identified by the hashes in their index, data in memory by hashing all of it. Names and
times of files are ignored.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gbdnn.model.network import Network

__all__ = ["checksum", "checksum_of_file", "digest", "of_features", "of_network"]

_AT_ONCE = 16_384  # inputs


def digest(data: Any = b"") -> Any:
    """Return the state of an XXH3-64, whose `update` adds bytes-like objects."""
    return require("xxhash", "store", "stores and training runs need xxhash").xxh3_64(data)


def checksum(data: Any) -> str:
    """Return the XXH3-64 of a bytes-like object, as 16 hexadecimal digits."""
    return digest(data).hexdigest()


def checksum_of_file(path: Path) -> str:
    """Return the XXH3-64 of a file."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, digest).hexdigest()


def of_network(net: Network) -> str:
    """Return the hash of a network's content."""
    source = net.source
    if source is None or not hasattr(source.reopen, "content"):
        return net.prepared(_of_weights)
    return checksum(repr((source.reopen.content(), source.layers, source.dtypes)).encode())


def of_features(X: Any) -> str:
    """Return the hash of the content of features, `SentFeatures`."""
    if X.source is not None:
        content = X.source.content()
        return checksum(repr((content, X.start, X.start + X.nrows)).encode())
    words = [
        word
        for start in range(0, X.nrows, _AT_ONCE)
        for word in _content(X.rows(start, min(start + _AT_ONCE, X.nrows)))
    ]
    return checksum("\n".join(words).encode())


def _of_weights(net: Network) -> str:
    return checksum("".join(_weights(net)).encode())


def _weights(net: Network) -> Iterator[str]:
    for k, layer in enumerate(net):
        columns = as_columns(layer.W, what=f"layer {k}")
        yield repr((layer.shape, layer.bias_rule, layer.activation, layer.clip))
        for array in (columns.indptr, columns.columns, columns.values, np.asarray(layer.bias)):
            yield f"{array.dtype}{checksum(np.ascontiguousarray(array))}"


def _content(rows: Any) -> list[str]:
    """Return the hashes of the arrays of sparse or dense rows."""
    arrays = [rows.indptr, rows.columns, rows.values] if hasattr(rows, "indptr") else [rows]
    return [f"{a.dtype}{a.shape}{checksum(np.ascontiguousarray(a))}" for a in arrays]
