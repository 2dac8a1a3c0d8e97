"""What is known of a layer without its weights, and the table of a network's layers."""

from __future__ import annotations

import math
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, get_args

import graphblas as gb
import numpy as np

from gbdnn.arrays.matrices import as_array, as_dtype, finite
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.model.bias import LateBias, as_bias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gbdnn.model.bias import BiasLike

__all__ = ["Activation", "BiasRule", "LayerInfo", "layer_table"]

BiasRule = Literal["all", "entries"]
Activation = Literal["relu", "identity"]

_GAIN_TOLERANCE = 1e-6  # sums of as many absolute values, added in another order


class LayerInfo:
    """A layer without its weights: what a network knows of a layer that it has not read.

    Parameters
    ----------
    shape : (int, int)
        Neurons of the layer before, neurons of this one.
    bias : float, vector of length ncols, or LateBias, default 0.0
        As for `Layer`.
    edges : int
        Number of stored weights.
    gain : float
        ``max_j sum_i |W(i, j)|``; infinity if that is beyond FP64.
    dtype : {"FP32", "FP64"} or NumPy dtype
        Of weights, bias and clip.
    bias_rule, activation, clip
        As for `Layer`.

    Raises
    ------
    ShapeError
        The bias vector has not one value per column.
    ArgumentError, ArgumentTypeError
        A value has no meaning here.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.LayerInfo((1024, 10), edges=512, gain=3.5, dtype="FP32", clip=1)
    LayerInfo(1024 x 10, 512 edges, FP32, bias 0 (all), relu, clip 1)
    """

    def __init__(
        self,
        shape: tuple[int, int],
        bias: BiasLike | LateBias = 0.0,
        *,
        edges: int,
        gain: float,
        dtype: Any,
        bias_rule: BiasRule = "all",
        activation: Activation = "relu",
        clip: float | None = None,
    ) -> None:
        _one_of("bias_rule", bias_rule, get_args(BiasRule))
        _one_of("activation", activation, get_args(Activation))
        self._shape = (_whole(shape[0], "nrows"), _whole(shape[1], "ncols"))
        self._edges = _whole(edges, "edges")
        self._gain = float(gain)
        if not self._gain >= 0:
            raise ArgumentError(f"gain is a number >= 0, not {gain}")
        self._dtype = as_dtype(dtype)
        self._bias = as_bias(bias, self._shape[1], self._dtype)
        self._clip = _as_clip(clip, self._dtype)
        self._bias_rule: BiasRule = bias_rule
        self._activation: Activation = activation

    @property
    def info(self) -> LayerInfo:
        """What is known of this layer without its weights, which it does not keep alive."""
        plain = LayerInfo.__new__(LayerInfo)
        plain.__dict__.update(self._known())
        return plain

    @property
    def bias(self) -> float | np.ndarray:
        """The bias: a float, or a read-only array of length ncols."""
        return self._bias.read() if isinstance(self._bias, LateBias) else self._bias

    @property
    def bias_rule(self) -> BiasRule:
        """Where the bias is added: ``"all"`` or ``"entries"``."""
        return self._bias_rule

    @property
    def activation(self) -> Activation:
        """``"relu"`` or ``"identity"``."""
        return self._activation

    @property
    def clip(self) -> float | None:
        """The upper limit of the activations, or None."""
        return self._clip

    @property
    def dtype(self) -> np.dtype:
        """float32 or float64, for weights, bias, clip and activations alike."""
        return self._dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Neurons of the layer before, neurons of this one."""
        return self._shape

    @property
    def nrows(self) -> int:
        """Neurons of the layer before."""
        return self._shape[0]

    @property
    def ncols(self) -> int:
        """Neurons of this layer."""
        return self._shape[1]

    @property
    def edges(self) -> int:
        """Number of stored weights."""
        return self._edges

    @property
    def gain(self) -> float:
        """``max_j sum_i |W(i, j)|``: no sum exceeds this times the largest activation."""
        return self._gain

    @cached_property
    def lowest_bias(self) -> float:
        """The smallest bias of a neuron; 0 if there is no neuron."""
        if isinstance(self._bias, LateBias):
            return self._bias.lowest
        if isinstance(self._bias, float):
            return self._bias if self.ncols else 0.0
        return float(np.min(self._bias, initial=np.inf)) if self.ncols else 0.0

    @cached_property
    def highest_bias(self) -> float:
        """The largest bias of a neuron; 0 if there is no neuron."""
        if isinstance(self._bias, LateBias):
            return self._bias.highest
        if isinstance(self._bias, float):
            return self._bias if self.ncols else 0.0
        return float(np.max(self._bias, initial=-np.inf)) if self.ncols else 0.0

    @cached_property
    def largest_bias(self) -> float:
        """The largest absolute bias of a neuron; 0 if there is no neuron."""
        return max(abs(self.lowest_bias), abs(self.highest_bias))

    @cached_property
    def revives(self) -> bool:
        """Whether an input without entries can leave this layer with some.

        Under ``entries`` none can; under ``all`` it takes a bias that the activation lets through.
        """
        if self._bias_rule == "entries":
            return False
        return self.highest_bias > 0 if self._activation == "relu" else self.largest_bias > 0

    def astype(self, dtype: Any) -> LayerInfo:
        """Return what is known of the layer cast to FP32 or FP64.

        In the cast to FP32 weights may round to 0: `edges` and `gain` are those before it.
        """
        wanted = as_dtype(dtype)
        late = self._bias
        return LayerInfo(
            self._shape,
            late.astype(wanted) if isinstance(late, LateBias) else late,
            edges=self._edges,
            gain=self._gain,
            dtype=wanted,
            bias_rule=self._bias_rule,
            activation=self._activation,
            clip=self._clip,
        )

    def difference(self, found: LayerInfo) -> str | None:
        """Return in what another layer differs from what is known, ``"edges 12, not 13"``."""
        for name in (
            "shape", "edges", "dtype", "bias_rule", "activation", "clip", "lowest_bias",
            "highest_bias",
        ):  # fmt: skip
            if getattr(self, name) != getattr(found, name):
                return f"{name} {getattr(found, name)}, not {getattr(self, name)}"
        if not math.isclose(self._gain, found.gain, rel_tol=_GAIN_TOLERANCE):
            return f"gain {found.gain:g}, not {self._gain:g}"
        return None

    def describe(self) -> str:
        """Return edges, dtype, bias, activation and clip in a few words."""
        words = [f"{self.edges} edges", gb.dtypes.lookup_dtype(self._dtype).name]
        if isinstance(self._bias, float):
            words.append(f"bias {self._bias:g} ({self._bias_rule})")
        else:
            low, high = self.lowest_bias, self.highest_bias
            words.append(f"bias {low:g} to {high:g} ({self._bias_rule})")
        words.append(self._activation)
        if self._clip is not None:
            words.append(f"clip {self._clip:g}")
        return ", ".join(words)

    def _known(self) -> dict[str, Any]:
        names = ("shape", "edges", "gain", "dtype", "bias", "clip", "bias_rule", "activation")
        return {f"_{name}": getattr(self, f"_{name}") for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._bias, np.ndarray):  # NumPy pickles no flags
            self._bias.flags.writeable = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.nrows} x {self.ncols}, {self.describe()})"


def layer_table(infos: Sequence[LayerInfo]) -> list[str]:
    """Return one row per layer; a run of layers that read alike is one row."""
    rows = [("layer", "shape", "edges", "")]
    alike = groupby(range(len(infos)), key=lambda k: (infos[k].shape, infos[k].describe()))
    for (shape, described), run in alike:
        ks = list(run)
        name = str(ks[0]) if len(ks) == 1 else f"{ks[0]}-{ks[-1]}"
        edges, _, options = described.split(", ", 2)
        rows.append((name, f"{shape[0]} x {shape[1]}", edges.removesuffix(" edges"), options))
    if len(rows) == 1:
        return []
    wide = [max(len(row[i]) for row in rows) for i in range(3)]
    return [
        f"  {a:<{wide[0]}}  {b:<{wide[1]}}  {c:>{wide[2]}}  {d}".rstrip() for a, b, c, d in rows
    ]


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        listed = " or ".join(repr(a) for a in allowed)
        raise ArgumentError(f"{name} is {listed}, not {value!r}")


def _whole(n: object, what: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ArgumentError(f"{what} is a whole number >= 0, not {n!r}")
    return int(n)


def _as_clip(clip: float | None, dtype: np.dtype) -> float | None:
    if clip is None:
        return None
    if isinstance(clip, bool) or not isinstance(clip, int | float | np.integer | np.floating):
        raise ArgumentTypeError(f"clip is a number or None, not {clip!r}")
    value = as_array(clip, "clip")
    if not (np.isfinite(value) and value > 0):
        raise ArgumentError(f"clip is finite and > 0, or None for no limit; not {value}")
    limit = float(finite(value.reshape(1), dtype, "clip")[0])
    if limit == 0:
        raise ArgumentError(f"clip: {value} becomes 0 as {dtype}")
    return limit
