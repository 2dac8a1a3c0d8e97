"""What a format does not store of a network.

Nothing is lost if the network that is read back, without options, gives the same answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbdnn.cli.formats import FORMATS, challenge_bias
from gbdnn.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gbdnn.cli.formats import Assumed
    from gbdnn.cli.options import FormatName
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["losses", "require_place"]


def losses(net: Network, name: FormatName) -> list[str]:
    """Return what would be lost, as ``"clip 32 (layer 0)"``, each with the first layer of it."""
    found: dict[str, str] = {}
    if assumed := FORMATS[name].assumed:
        for k, info in enumerate(net.infos):
            for kind, what in _lost(info, assumed, last=k == len(net) - 1):
                found.setdefault(kind, f"{what} (layer {k})")
    return list(found.values())


def require_place(net: Network, path: Path, name: FormatName) -> None:
    """Raise ArgumentError if something would be lost.

    Raises
    ------
    ArgumentError
        The message says what would be lost, and how to write the network all the same.
    """
    if lost := losses(net, name):
        raise ArgumentError(
            f"{path}: the format {name} has no place for {', '.join(lost)}; a store has, and"
            " --lossy leaves it out: it has to be said when the network is read"
        )


def _lost(info: LayerInfo, assumed: Assumed, *, last: bool) -> Iterator[tuple[str, str]]:
    """Yield kind and description of each property that differs from what a reader assumes."""
    low, high = info.lowest_bias, info.highest_bias
    if assumed.weights_only:
        if not low == high == info.dtype.type(challenge_bias(info.ncols)):
            several = "" if low == high else f" to {high:g}"
            yield "bias", f"a bias of {low:g}{several}"
        if info.dtype != np.float32:
            yield "dtype", "FP64"
    # With a ReLU and a bias <= 0 both rules are the same.
    same = info.activation == "relu" and high <= 0
    if not same and (low or high) and info.bias_rule != assumed.bias_rule:
        yield "rule", f"the bias rule {info.bias_rule}"
    if info.clip != assumed.clip:
        yield "clip", "having no upper limit" if info.clip is None else f"clip {info.clip:g}"
    if info.activation != (assumed.last_activation if last else "relu"):
        yield "activation", f"the activation {info.activation}"
