"""Compaction: neurons that nothing reaches, or that reach nothing, leave; the answers stay.

A neuron without incoming edges gives every input the same value, ``min(max(b, 0), clip)``: times
its outgoing weights, that is a part of the next layer's bias. A neuron without outgoing edges is
not seen by anyone. Each removal may leave others without edges: one pass from the inputs to the
outputs finds all of the first kind, one pass back all of the second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_flag
from gbdnn.errors import naming
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.first_use import gb

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CompactNetwork", "compact"]


class CompactNetwork(NamedTuple):
    """What `compact` returns.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W = np.array([[1.0, 0.0], [0.0, 0.0]])  # the second input has no edges
    >>> found = gbdnn.training.compact([gbdnn.Layer(W)], inputs=True)
    >>> found.network.shape, found.inputs
    ((1, 2), array([0]))
    """

    network: Network
    """With smaller layers, and the same answers but for rounding."""

    inputs: np.ndarray
    """The inputs that the network's first layer has, of those that there were: int64, ascending."""


def compact(net: Network | Iterable[Layer], *, inputs: bool = False) -> CompactNetwork:
    """Return a network without the neurons that make no difference.

    Parameters
    ----------
    net : Network or list of Layer
        Of any bias rules, activations and clips. It is not changed.
    inputs : bool, default False
        Remove inputs without edges too. The network then takes ``X[:, found.inputs]``.

    Returns
    -------
    CompactNetwork
        The network, and the inputs that it has (without `inputs=True`, all). Its answers are those
        of `net` but for rounding. Outputs stay, with or without edges. A layer that would lose all
        its neurons keeps one without edges, which fires for no input; the answer after it is the
        same for all.

    Notes
    -----
    Under the rule ``"entries"`` a neuron without incoming edges has no entry: it is removed, and
    nothing becomes a bias. A layer under that rule depends on which entries its inputs have, which
    a bias could not replace: a neuron that always fires stays before such a layer.

    Examples
    --------
    Nothing reaches the second of three neurons; it always has the value 2:

    >>> import numpy as np, gbdnn
    >>> W0 = np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 1.0]])
    >>> W1 = np.array([[1.0], [5.0], [1.0]])
    >>> net = [gbdnn.Layer(W0, [0.0, 2.0, 0.0]), gbdnn.Layer(W1, 1.0)]
    >>> small, _ = gbdnn.training.compact(net)
    >>> small
    Network: 2 layers, 2 inputs to 1 outputs, 5 edges, FP64
      layer  shape  edges
      0      2 x 2      3  bias 0 (all), relu
      1      2 x 1      2  bias 11 (all), relu
    """
    as_flag(inputs, "inputs")
    with naming("net"):
        layers = list(as_network(net).loaded())
    if not layers:
        return CompactNetwork(Network([]), np.arange(0))
    live, biases = _reached(layers)
    _keep_used(layers, live, inputs=inputs)
    found = [
        _cut(layer, bias, np.flatnonzero(before), np.flatnonzero(after))
        for layer, bias, before, after in zip(layers, biases, live[:-1], live[1:], strict=True)
    ]
    kept = np.flatnonzero(live[0]) if live[0].any() else np.arange(min(1, len(live[0])))
    return CompactNetwork(Network(found), kept)


def _reached(layers: list[Layer]) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Return which neurons are not constant, and biases that have the constants in them.

    The first list is of bool arrays, beginning with the inputs; the second has None where a bias
    stays as it is.
    """
    live = [np.ones(layers[0].nrows, bool)]
    biases: list[np.ndarray | None] = [None] * len(layers)
    for k, layer in enumerate(layers):
        rows, columns = _edges(layer)
        constant = np.bincount(columns[live[k][rows]], minlength=layer.ncols) == 0
        if k == len(layers) - 1:
            live.append(np.ones(layer.ncols, bool))
            break
        after = layers[k + 1]
        values = np.where(constant, _constants(layer, biases[k]), 0)
        if after.bias_rule == "entries":
            constant &= values == 0
        elif values.any():
            # b' = b + v W
            v = gb.Vector.from_dense(values, missing_value=0)
            z = gb.semiring.plus_times["FP64"](v @ after.W).new()
            biases[k + 1] = np.asarray(after.bias, np.float64) + z.to_dense(fill_value=0)
        live.append(~constant)
    return live, biases


def _constants(layer: Layer, bias: np.ndarray | None) -> np.ndarray:
    """Return what each neuron gives without any edge, FP64, shape (ncols,)."""
    if layer.bias_rule == "entries":
        return np.zeros(layer.ncols)
    found = np.array(layer.bias if bias is None else bias, np.float64)
    if layer.activation == "relu":
        found = np.maximum(found, 0)
    if layer.clip is not None:
        found = np.minimum(found, layer.clip)
    return np.broadcast_to(found, layer.ncols)


def _keep_used(layers: list[Layer], live: list[np.ndarray], *, inputs: bool) -> None:
    """Clear the neurons that reach none of those that are left, and with `inputs` the inputs."""
    for k in reversed(range(0 if inputs else 1, len(layers))):
        rows, columns = _edges(layers[k])
        live[k] &= np.bincount(rows[live[k + 1][columns]], minlength=layers[k].nrows) > 0


def _edges(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Return the neurons that edges come from and go to, int64."""
    rows, columns, _ = layer.W.to_coo(values=False, sort=False)
    return rows.view(np.int64), columns.view(np.int64)


def _cut(layer: Layer, bias: np.ndarray | None, before: np.ndarray, after: np.ndarray) -> Layer:
    """Return a layer between some neurons of both sides; a side without any becomes one neuron."""
    if bias is None and (len(before), len(after)) == layer.shape:
        return layer
    found = layer.bias if bias is None else bias
    if len(before) and len(after):
        W = layer.W[before, after].new()
    else:
        shape = (max(len(before), min(1, layer.nrows)), max(len(after), min(1, layer.ncols)))
        W = gb.Matrix(layer.W.dtype, *shape)
    if np.ndim(found):
        found = found[after] if len(after) else 0.0  # type: ignore[index]
    elif not len(after):
        found = 0.0
    return Layer(
        W,
        found,
        bias_rule=layer.bias_rule,
        activation=layer.activation,
        clip=layer.clip,
        dtype=layer.dtype,
        copy=False,
    )
