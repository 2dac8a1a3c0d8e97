"""Properties of a layer without its weights, and the table of a network's layers."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from gbdnn.arrays.checks import (
    as_array,
    as_dtype,
    as_number,
    as_word,
    finite,
    whole_number,
    without_scalar,
)
from gbdnn.errors import ArgumentError, ArgumentTypeError, require_kind
from gbdnn.runtime.first_use import gb, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Activation", "BiasRule", "LayerInfo", "layer_rows"]

BiasRule = Literal["all", "entries"]
Activation = Literal["relu", "identity"]

_GAIN_TOLERANCE = 1e-6  # the same sums may have been added in another order


@dataclass(frozen=True, repr=False)
class LayerInfo:
    """Properties of a layer without its weights, as a lazy network knows them.

    Attributes
    ----------
    shape : (int, int)
        Neurons of the previous layer, neurons of this one.
    edges : int
        Number of stored weights.
    gain : float
        ``max_j sum_i |W(i, j)|``: no sum exceeds this times the largest activation. Infinity if
        it overflows FP64.
    dtype : numpy.dtype
        float32 or float64, of weights, bias, clip and activations; ``"FP32"`` is accepted too.
    lowest_bias, highest_bias : float, default: 0.0
        Range of the neurons' biases.
    bias_rule : {"all", "entries"}, default: "all"
        See `Layer`.
    activation : {"relu", "identity"}, default: "relu"
        ``max(z, 0)``, or none.
    clip : float, optional
        Upper limit of the activations.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.LayerInfo((1024, 10), edges=512, gain=3.5, dtype="FP32", clip=1)
    LayerInfo(1024 x 10, 512 edges, FP32, bias 0 (all), relu, clip 1)
    """

    shape: tuple[int, int]
    edges: int
    gain: float
    dtype: np.dtype
    lowest_bias: float = 0.0
    highest_bias: float = 0.0
    bias_rule: BiasRule = "all"
    activation: Activation = "relu"
    clip: float | None = None

    unrounded: ClassVar[dict[str, Any]]
    """Biases and clip of each instance before they were rounded to the dtype, as arguments."""

    def __post_init__(self) -> None:
        as_word(self.bias_rule, "bias_rule", get_args(BiasRule))
        as_word(self.activation, "activation", get_args(Activation))
        if not isinstance(self.shape, tuple | list) or len(self.shape) != 2:
            raise ArgumentTypeError(f"shape must be two integers, not {shown(self.shape)}")
        nrows, ncols = self.shape
        for what, n in (("shape: nrows", nrows), ("shape: ncols", ncols), ("edges", self.edges)):
            whole_number(n, what, least=0)
        if as_number(self.gain, "gain") < 0:
            raise ArgumentError(f"gain must be at least 0, not {self.gain}")
        dtype = as_dtype(self.dtype)
        biases = as_array([self.lowest_bias, self.highest_bias] if ncols else [0.0, 0.0], "bias")
        low, high = finite(biases, dtype, "bias").tolist()
        if low > high:
            raise ArgumentError(f"the lowest bias, {low:g}, is above the highest, {high:g}")
        clip = _as_clip(self.clip, dtype)
        given: dict[str, Any] = {"clip": None if self.clip is None else float(self.clip)}
        given |= {"lowest_bias": float(biases.min()), "highest_bias": float(biases.max())}
        self._set(
            shape=(int(nrows), int(ncols)),
            edges=int(self.edges),
            gain=float(self.gain),
            dtype=dtype,
            lowest_bias=low,
            highest_bias=high,
            clip=clip,
            unrounded=given,
        )

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def info(self) -> LayerInfo:
        """The properties of this layer, without a reference to its weights."""
        if type(self) is LayerInfo:
            return self
        copied = LayerInfo.__new__(LayerInfo)  # all values have been checked
        copied._set(**{field.name: getattr(self, field.name) for field in fields(LayerInfo)})
        copied._set(unrounded=self.unrounded)
        return copied

    @property
    def nrows(self) -> int:
        """Number of neurons of the previous layer."""
        return self.shape[0]

    @property
    def ncols(self) -> int:
        """Number of neurons of this layer."""
        return self.shape[1]

    @property
    def largest_bias(self) -> float:
        """The largest absolute bias of a neuron, or 0 without neurons."""
        return max(abs(self.lowest_bias), abs(self.highest_bias))

    @property
    def revives(self) -> bool:
        """Whether an input without entries can have entries after this layer.

        Never under ``entries``; under ``all`` if some bias passes the activation.
        """
        if self.bias_rule == "entries":
            return False
        return self.highest_bias > 0 if self.activation == "relu" else self.largest_bias > 0

    def astype(self, dtype: Any) -> LayerInfo:
        """Return the properties of this layer cast to FP32 or FP64.

        `edges` and `gain` are those before the cast, in which weights may round to 0.
        """
        return replace(self.info, dtype=as_dtype(dtype), **self.unrounded)

    def difference(self, found: LayerInfo) -> str | None:
        """Describe the first difference of another layer, as ``"edges 12, not 13"``, or None."""
        require_kind(found, LayerInfo, "found must be a LayerInfo")
        for name in (field.name for field in fields(LayerInfo)):
            known, here = getattr(self, name), getattr(found, name)
            if name == "gain" and math.isclose(known, here, rel_tol=_GAIN_TOLERANCE):
                continue
            if known != here:
                number = "{:g}" if name == "gain" else "{}"
                return f"{name} {number.format(here)}, not {number.format(known)}"
        return None

    def describe(self) -> str:
        """Return a summary of edges, dtype, bias, activation and clip."""
        low, high = self.lowest_bias, self.highest_bias
        words = [
            f"{self.edges} edges",
            gb.dtypes.lookup_dtype(self.dtype).name,
            f"bias {low:g}{'' if low == high else f' to {high:g}'} ({self.bias_rule})",
            self.activation,
        ]
        if self.clip is not None:
            words.append(f"clip {self.clip:g}")
        return ", ".join(words)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nrows} x {self.ncols}, {self.describe()})"


def layer_rows(infos: Sequence[LayerInfo]) -> list[tuple[str, str, str, str]]:
    """Return a row per layer; consecutive layers with equal text share a row."""
    rows = []
    alike = groupby(range(len(infos)), key=lambda k: (infos[k].shape, infos[k].describe()))
    for (shape, described), run in alike:
        ks = list(run)
        name = str(ks[0]) if len(ks) == 1 else f"{ks[0]}-{ks[-1]}"
        edges, _, options = described.split(", ", 2)
        rows.append((name, f"{shape[0]} x {shape[1]}", edges.removesuffix(" edges"), options))
    return rows


def _as_clip(clip: float | None, dtype: np.dtype) -> float | None:
    clip = without_scalar(clip)
    if clip is None:
        return None
    if isinstance(clip, bool) or not isinstance(clip, int | float | np.integer | np.floating):
        raise ArgumentTypeError(f"clip must be a number or None, not {shown(clip)}")
    value = as_array(clip, "clip")
    if not (np.isfinite(value) and value > 0):
        raise ArgumentError(f"clip must be finite and positive, or None for no limit, not {value}")
    limit = float(finite(value.reshape(1), dtype, "clip")[0])
    if limit == 0:
        raise ArgumentError(f"clip: {value} rounds to 0 in {dtype}")
    return limit
