"""What of a network a format has no place for.

Measured by the answers: nothing is lost if the network that is read back, without options, gives
the same ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.errors import ArgumentError
from gbdnn.gallery.radixnet import CHALLENGE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gbdnn.cli.formats import FormatName
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["losses", "require_place"]


def losses(net: Network, name: FormatName) -> list[str]:
    """Return what would be lost, as ``"clip 32 (layer 0)"``, each with the first layer of it."""
    found: dict[str, str] = {}
    if name not in ("store", "onnx"):
        for k, info in enumerate(net.infos):
            for kind, what in _lost(info, name, last=k == len(net) - 1):
                found.setdefault(kind, f"{what} (layer {k})")
    return list(found.values())


def require_place(net: Network, path: Path, name: FormatName) -> None:
    """Raise ArgumentError if something would be lost.

    Raises
    ------
    ArgumentError
        The message says what, and how to write the network all the same.
    """
    if lost := losses(net, name):
        raise ArgumentError(
            f"{path}: the format {name} has no place for {', '.join(lost)}; a store has, and"
            " --lossy leaves it out: it has to be said when the network is read"
        )


def _lost(info: LayerInfo, name: FormatName, *, last: bool) -> Iterator[tuple[str, str]]:
    """Yield the kind and the description of what a reader would take otherwise."""
    tsv = name == "tsv"
    if tsv:
        bias = CHALLENGE[info.ncols].bias if info.ncols in CHALLENGE else 0.0
        if not info.lowest_bias == info.highest_bias == info.dtype.type(bias):
            low, high = info.lowest_bias, info.highest_bias
            several = "" if low == high else f" to {high:g}"
            yield "bias", f"a bias of {low:g}{several}"
        if info.dtype != np.float32:
            yield "dtype", "FP64"
    # A bias that is not positive, before a ReLU, is the same under both rules.
    same = info.activation == "relu" and info.highest_bias <= 0
    if not same and info.largest_bias and (info.bias_rule == "entries") is not tsv:
        yield "rule", f"the bias rule {info.bias_rule}"
    clip = 32.0 if tsv else None
    if info.clip != clip:
        yield "clip", "having no upper limit" if info.clip is None else f"clip {info.clip:g}"
    activation = "identity" if last and name == "torch" else "relu"
    if info.activation != activation:
        yield "activation", f"the activation {info.activation}"
