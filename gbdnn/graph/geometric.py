"""Conversion of the graph convolutions of PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError, naming
from gbdnn.graph.convolution import Convolution
from gbdnn.io.frameworks.torch import from_torch
from gbdnn.io.frameworks.torch_tensors import as_array
from gbdnn.runtime.optional import if_imported

if TYPE_CHECKING:
    from gbdnn.model.layer import Activation, Layer

__all__ = ["from_geometric"]

_ALL: dict[str, Any] = {"flow": ["source_to_target"], "node_dim": [-2]}
_SUM: dict[str, Any] = _ALL | {"aggr": ["add", "sum"]}
_ANY: dict[str, Any] = _ALL | {"aggr": ["add", "sum", "mean", "max", "min"]}
# Options that change the result, with the supported values.
_SUPPORTED = {
    "GCNConv": _SUM | {"improved": [False]},
    "SGConv": _SUM | {"K": range(1, 1 << 31)},
    "SAGEConv": _ANY | {"normalize": [False], "project": [False]},
    "GINConv": _ANY,
}


def from_geometric(conv: Any, *, activation: Activation = "identity") -> list[Convolution]:
    """Return the layers of a graph convolution of PyTorch Geometric, for `gbdnn.graph.infer`.

    Parameters
    ----------
    conv : torch_geometric.nn.GCNConv, SGConv, SAGEConv or GINConv
        A trained module. The `nn` of a `GINConv` is a chain of linear layers, as for
        `gbdnn.io.from_torch`.
    activation : {"identity", "relu"}, default "identity"
        Activation after the module.

    Returns
    -------
    list of Convolution
        Pass them to `infer` with the matrix of the module; see the notes.

    Raises
    ------
    ArgumentTypeError
        The module is of another class.
    ArgumentError
        An option of the module is not supported; it has forward hooks, methods of its instance, or
        other modules than its class makes.

    Notes
    -----
    The matrix for `infer`, where ``G(i, j)`` is an edge of `edge_index` from i to j:

    ==========================================  ==========================================
    `GCNConv`, `SGConv`                         ``normalized(G)``
    with ``add_self_loops=False``               ``normalized(G, self_loops=False)``
    `GCNConv` with ``normalize=False``          ``G.T``
    `SAGEConv`, `GINConv` with ``aggr="mean"``  ``normalized(G, "mean")``
    with ``aggr="add"`` or ``"sum"``            ``G.T``
    with ``aggr="max"`` or ``"min"``            ``G.T``, and ``infer(aggregate="max")``
    ==========================================  ==========================================

    The default of `SAGEConv` is ``"mean"``, that of `GINConv` ``"add"``. Both ignore the weights of
    edges; pass them a G whose values are 1. PyTorch Geometric counts duplicate edges; a matrix
    holds one value per pair of nodes.

    Examples
    --------
    >>> from torch_geometric.nn import GCNConv  # doctest: +SKIP
    >>> from gbdnn import graph
    >>> conv = GCNConv(16, 4)  # doctest: +SKIP
    >>> layers = graph.from_geometric(conv)  # doctest: +SKIP
    >>> Y = graph.infer(layers, X, graph.normalized(G))  # doctest: +SKIP
    """
    kind = type(conv).__name__
    if kind not in _READERS or type(conv) is not if_imported("torch_geometric.nn", kind):
        raise ArgumentTypeError(f"cannot convert {kind}; supported are {', '.join(_READERS)} only")
    from gbdnn.io.frameworks.torch_trace import require_visible

    require_visible(kind, conv)
    for name, supported in _SUPPORTED[kind].items():
        value = getattr(conv, name, supported[0])
        if value not in supported:
            raise ArgumentError(f"{kind} with {name}={value!r} is not supported")
    return _READERS[kind](conv, activation)


def _gcn(conv: Any, activation: Activation) -> list[Convolution]:
    W, _ = _linear(conv, "lin", has_bias=False)
    bias = 0.0 if conv.bias is None else as_array(conv.bias)
    return [Convolution(W, bias, activation=activation)]


def _sgc(conv: Any, activation: Activation) -> list[Convolution]:
    W, bias = _linear(conv, "lin")
    hop = Convolution(np.eye(len(W), dtype=W.dtype), activation="identity")
    return [hop] * (conv.K - 1) + [Convolution(W, bias, activation=activation)]


def _sage(conv: Any, activation: Activation) -> list[Convolution]:
    W, bias = _linear(conv, "lin_l")
    own = _linear(conv, "lin_r", has_bias=False)[0] if conv.root_weight else None
    return [Convolution(W, bias, self_weights=own, activation=activation)]


def _gin(conv: Any, activation: Activation) -> list[Convolution]:
    first, *more = from_torch(conv.nn)
    W = _dense(first)
    own = W.dtype.type(1 + float(conv.eps)) * W
    layers = [
        Convolution(w, layer.bias, self_weights=v, activation=layer.activation, clip=layer.clip)
        for layer, w, v in ((first, W, own), *((each, None, each.weights) for each in more))
    ]
    if activation == "relu" and layers[-1].layer.activation == "identity":
        layers.append(Convolution(self_weights=np.eye(layers[-1].layer.ncols, dtype=W.dtype)))
    return layers


def _linear(conv: Any, name: str, *, has_bias: bool = True) -> tuple[np.ndarray, Any]:
    """Return the weights and the bias of a linear layer of a module."""
    with naming(f"{type(conv).__name__}.{name}"):
        layers = from_torch(getattr(conv, name))
        if [(x.activation, x.clip) for x in layers] != [("identity", None)]:
            raise ArgumentError("is not one linear layer")
        if not has_bias and np.any(layers[0].bias):
            raise ArgumentError("has a bias, which the original module has not")
        return _dense(layers[0]), layers[0].bias


def _dense(layer: Layer) -> np.ndarray:
    W: np.ndarray = layer.weights.to_dense(fill_value=0, dtype=layer.weights.dtype)
    return W


_READERS = {"GCNConv": _gcn, "SGConv": _sgc, "SAGEConv": _sage, "GINConv": _gin}
