"""Compaction: remove neurons that do not affect the answer.

A neuron without incoming edges has the same value ``min(max(b, 0), clip)`` for every input. This
value times its outgoing weights is added to the next layer's bias. A neuron without outgoing edges
has no effect. Since each removal may leave other neurons without edges, a pass from inputs to
outputs finds all neurons of the first kind, and a pass back those of the second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_flag
from gbdnn.errors import naming
from gbdnn.model.layer import Layer, options_of
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.ownership import owned

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["compact"]


class CompactNetwork(NamedTuple):
    """Result of `compact`, described there."""

    network: Network
    inputs: np.ndarray


def compact(network: Network | Iterable[Layer], *, inputs: bool = False) -> CompactNetwork:
    """Remove neurons that do not affect the answer.

    Parameters
    ----------
    network : Network or list of Layer
        Any bias rules, activations and clips. It is not modified.
    inputs : bool, default False
        Also remove inputs without edges. The network then takes ``X[:, found.inputs]``.

    Returns
    -------
    network : Network
        Smaller network, whose answers equal those of the given one up to rounding. All outputs are
        kept. A layer that would lose all its neurons keeps one without edges, whose value is 0.
    inputs : ndarray of int64
        Ascending numbers of the inputs that it keeps: all, unless `inputs`. Both are attributes of
        the result, too.

    Notes
    -----
    Under the bias rule ``"entries"``, neurons without incoming edges have no entries and are
    removed without changing a bias. A bias cannot replace a constant neuron before such a layer, so
    the neuron is kept.

    Examples
    --------
    The second of three neurons has no incoming edges; its value is always 2:

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
    with naming("network"):
        layers = list(as_network(network).loaded())
    if not layers:
        return CompactNetwork(Network([]), np.arange(0))
    live, biases = _reached(layers)
    _keep_used(layers, live, inputs=inputs)
    layers = [
        _cut(layer, bias, np.flatnonzero(before), np.flatnonzero(after))
        for layer, bias, before, after in zip(layers, biases, live[:-1], live[1:], strict=True)
    ]
    kept = np.flatnonzero(live[0]) if live[0].any() else np.arange(min(1, len(live[0])))
    return CompactNetwork(Network(layers), kept)


def _reached(layers: list[Layer]) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Return masks of the neurons that are not constant, and biases that include the constants.

    The masks start with the inputs. A bias is None if it does not change.
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
            v = owned(gb.Vector.ss.import_full, values=values)
            z = gb.semiring.plus_times["FP64"](v @ after.W).new()
            biases[k + 1] = np.asarray(after.bias, np.float64) + z.to_dense(fill_value=0)
        live.append(~constant)
    return live, biases


def _constants(layer: Layer, bias: np.ndarray | None) -> np.ndarray:
    """Return each neuron's value if it has no incoming edges: FP64, shape (ncols,)."""
    if layer.bias_rule == "entries":
        return np.zeros(layer.ncols)
    values = np.array(layer.bias if bias is None else bias, np.float64)
    if layer.activation == "relu":
        values = np.maximum(values, 0)
    if layer.clip is not None:
        values = np.minimum(values, layer.clip)
    return np.broadcast_to(values, layer.ncols)


def _keep_used(layers: list[Layer], live: list[np.ndarray], *, inputs: bool) -> None:
    """Clear neurons without a path to an output; also inputs, if `inputs`."""
    for k in reversed(range(0 if inputs else 1, len(layers))):
        rows, columns = _edges(layers[k])
        live[k] &= np.bincount(rows[live[k + 1][columns]], minlength=layers[k].nrows) > 0


def _edges(layer: Layer) -> tuple[np.ndarray, np.ndarray]:
    """Return source and target neuron of each edge, int64."""
    rows, columns, _ = layer.W.to_coo(values=False, sort=False)
    return rows.view(np.int64), columns.view(np.int64)


def _cut(layer: Layer, bias: np.ndarray | None, before: np.ndarray, after: np.ndarray) -> Layer:
    """Return a layer restricted to some neurons; an empty side gets one neuron."""
    if bias is None and (len(before), len(after)) == layer.shape:
        return layer
    new_bias = layer.bias if bias is None else bias
    if len(before) and len(after):
        W = layer.W[before, after].new()
    else:
        shape = (max(len(before), min(1, layer.nrows)), max(len(after), min(1, layer.ncols)))
        W = gb.Matrix(layer.W.dtype, *shape)
    if np.ndim(new_bias):
        new_bias = new_bias[after] if len(after) else 0.0  # type: ignore[index]
    elif not len(after):
        new_bias = 0.0
    return Layer(W, new_bias, **options_of(layer), copy=False)
