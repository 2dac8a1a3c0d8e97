"""The properties of a network that a format cannot store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_flag
from gbdnn.errors import ArgumentError
from gbdnn.gallery.networks import CHALLENGE
from gbdnn.io.format import Assumed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbdnn.io.format import Format
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.model.network import Network

__all__ = ["challenge_bias", "losses"]


def challenge_bias(neurons: int) -> float:
    """Return the challenge's bias for a number of neurons, 0 for other sizes."""
    return CHALLENGE[neurons].bias if neurons in CHALLENGE else 0.0


def losses(net: Network, form: Format, path: object, *, lossy: bool) -> list[str]:
    """Return the properties that a format cannot store, such as ``"clip 32 (layer 0)"``.

    Raise ArgumentError if there are any, unless `lossy`.
    """
    lost = _losses(net, form.assumed)
    if lost and not as_flag(lossy, "lossy"):
        raise ArgumentError(
            f"{path}: the format {form.name} cannot store {', '.join(lost.values())}; a store can."
            f" Pass lossy=True to drop it{_restoring(net, form, lost)}."
        )
    return list(lost.values())


def _losses(net: Network, assumed: Assumed | None) -> dict[str, str]:
    lost: dict[str, str] = {}
    if assumed is not None:
        for k, info in enumerate(net.infos):
            for kind, what in _lost(info, assumed, last=k == len(net) - 1):
                lost.setdefault(kind, f"{what} (layer {k})")
    return lost


def _restoring(net: Network, form: Format, lost: dict[str, str]) -> str:
    """Return advice on the options of `load` that restore the network, if there are such."""
    first, last = net.infos[0], net.infos[-1]
    known: dict[str, Any] = {"clip": first.clip, "bias": first.lowest_bias, "dtype": first.dtype}
    known |= {
        "activation": first.activation,
        "last_activation": last.activation,
        "bias_rule": first.bias_rule,
    }
    names = [name for name in lost if form.takes(name)]
    assumed = replace(form.assumed or Assumed(), **{name: known[name] for name in names})
    if not names or _losses(net, assumed):
        return ""
    return f", and {' and '.join(f'{name}=' for name in names)} to gbdnn.load to restore it"


def _lost(info: LayerInfo, assumed: Assumed, *, last: bool) -> Iterator[tuple[str, str]]:
    """Yield kind and description of each property that differs from what a reader assumes."""
    low, high = info.lowest_bias, info.highest_bias
    if assumed.weights_only:
        bias = challenge_bias(info.ncols) if assumed.bias is None else assumed.bias
        if not low == high == info.dtype.type(bias):
            several = "" if low == high else f" to {high:g}"
            yield "bias", f"a bias of {low:g}{several}"
        if info.dtype != assumed.dtype:
            yield "dtype", "FP64"
    # With a ReLU and biases of at most 0, both rules give the same result.
    same = info.activation == "relu" and high <= 0
    if not same and (low or high) and info.bias_rule != assumed.bias_rule:
        yield "bias_rule", f"the bias rule {info.bias_rule}"
    activation = assumed.last_activation if last else assumed.activation
    if info.clip != (assumed.clip if activation == "relu" else None):
        yield "clip", "unbounded activations" if info.clip is None else f"clip {info.clip:g}"
    if info.activation != activation:
        yield "last_activation" if last else "activation", f"the activation {info.activation}"
