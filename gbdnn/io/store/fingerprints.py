"""Fingerprints: of what a run is made of, by these a call that resumes it knows it again.

A store has the checksums of its arrays in its index: that is read, and nothing else. What is in
memory is read in full. Neither names nor times of files count. What has no arrays, options and
functions, is told in words that are the same in every process.
"""

from __future__ import annotations

import dataclasses
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbdnn.arrays.matrices import as_columns
from gbdnn.runtime.first_use import complete
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gbdnn.model.network import Network

__all__ = ["checksum", "checksum_of", "identity", "of_features", "of_network"]

_AT_ONCE = 16_384  # inputs
_PLAIN = (type(None), type(...), bool, int, float, complex, str)


class _Rows(Protocol):
    """Rows of features: some of a store, or in memory."""

    source: Any
    start: int
    nrows: int

    def rows(self, start: int, stop: int, /) -> Any: ...


def checksum(data: Any) -> str:
    """Return the XXH3-64 of some bytes, as 16 hexadecimal digits."""
    return checksum_of([data])


def checksum_of(parts: Iterable[Any]) -> str:
    """Return the XXH3-64 of bytes that follow each other."""
    digest = require("xxhash", "store", "a store has checksums of xxhash").xxh3_64()
    for part in parts:
        digest.update(part)
    found: str = digest.hexdigest()
    return found


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


def of_features(X: _Rows) -> tuple[str, str]:
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


def identity(x: Any) -> str:
    """Return what `x` is: its class, by name, and what it consists of.

    That is the fields of a dataclass, the code of a function and what it has bound, of other
    objects what `pickle` would keep. What has nothing of that is known by its `repr`, as a rule
    with an address in it: it is never taken for another one.
    """
    return _words(x, {}, ())


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
    is_sparse = hasattr(sent, "indptr")
    arrays = [sent.indptr, sent.columns, sent.values] if is_sparse else [sent]
    return [f"{a.dtype}{a.shape}{checksum(np.ascontiguousarray(a))}" for a in arrays]


def _words(x: Any, known: dict[int, tuple[Any, str]], around: tuple[Any, ...]) -> str:
    """Return what `identity` does; `known` has what was met before, `around` what `x` is in."""
    if type(x) in _PLAIN:
        return repr(x)
    if type(x) in (bytes, bytearray):
        return f"bytes {len(x)} {checksum(x)}"
    if isinstance(x, type | BuiltinFunctionType | np.ufunc):
        return f"{getattr(x, '__module__', '')}.{getattr(x, '__qualname__', x.__name__)}"
    if id(x) in known:
        return known[id(x)][1]
    for depth, each in enumerate(around):
        if each is x:
            return f"what is around it, {depth}"
    parts = _parts(x)
    if parts is None:
        words = repr(x)
    else:
        of_parts = [_words(each, known, (*around, x)) for each in parts]
        if isinstance(x, dict | set | frozenset):
            of_parts.sort()
        words = checksum(f"{type(x).__module__}.{type(x).__qualname__}{of_parts}".encode())
    known[id(x)] = x, words  # with `x`: its address is nobody else's then
    return words


def _parts(x: Any) -> list[Any] | None:
    """Return what an object consists of, None if that cannot be told."""
    if type(x) is dict:
        return list(x.items())
    if type(x) in (list, tuple, set, frozenset):
        return list(x)
    if dataclasses.is_dataclass(x):
        return [getattr(x, field.name) for field in dataclasses.fields(x)]
    if type(x) is CodeType:
        return [x.co_code, x.co_consts, x.co_names]
    complete(x)
    try:
        if type(x) is FunctionType:
            bound = [cell.cell_contents for cell in x.__closure__ or ()]
            named = [x.__module__, x.__qualname__]
            return [*named, x.__code__, x.__defaults__, x.__kwdefaults__, bound]
        found = x.__reduce_ex__(4)
    except Exception:  # of a class of anybody's
        return None
    return [found] if isinstance(found, str) else [*found[:3], *map(list, filter(None, found[3:5]))]
