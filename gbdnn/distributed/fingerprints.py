"""Fingerprints of features, beside those of networks: by these a run that goes on knows them again.

A store has the checksums of its arrays in its index: that is read, and nothing else. What is in
memory is read in full. Neither names nor times of files count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.distributed.sent import CompactRows
from gbdnn.io.fingerprints import of_network
from gbdnn.io.store.index import checksum

if TYPE_CHECKING:
    from gbdnn.distributed.sent import SentFeatures

__all__ = ["of_features", "of_network"]

_AT_ONCE = 16_384  # inputs


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


def _content(sent: Any) -> list[str]:
    compact = isinstance(sent, CompactRows)
    arrays = [sent.indptr, sent.columns, sent.values] if compact else [sent]
    return [f"{a.dtype}{a.shape}{checksum(np.ascontiguousarray(a))}" for a in arrays]
