"""Conversion of the graph convolutions of PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.graph.convolution import Convolution
from gbdnn.io.frameworks.torch import from_torch

if TYPE_CHECKING:
    from gbdnn.model.layer import Activation

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
        An option of the module is not supported.

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
    if kind not in _READERS:
        raise ArgumentTypeError(f"cannot convert {kind}; supported are {', '.join(_READERS)}")
    for name, supported in _SUPPORTED[kind].items():
        value = getattr(conv, name, supported[0])
        if value not in supported:
            raise ArgumentError(f"{kind} with {name}={value!r} is not supported")
    return _READERS[kind](conv, activation)


def _gcn(conv: Any, activation: Activation) -> list[Convolution]:
    return [Convolution(_weights(conv.lin), _bias(conv.bias), activation=activation)]


def _sgc(conv: Any, activation: Activation) -> list[Convolution]:
    W = _weights(conv.lin)
    hop = Convolution(np.eye(len(W), dtype=W.dtype), activation="identity")
    return [hop] * (conv.K - 1) + [Convolution(W, _bias(conv.lin.bias), activation=activation)]


def _sage(conv: Any, activation: Activation) -> list[Convolution]:
    own = _weights(conv.lin_r) if conv.root_weight else None
    bias = _bias(conv.lin_l.bias)
    return [Convolution(_weights(conv.lin_l), bias, self_weights=own, activation=activation)]


def _gin(conv: Any, activation: Activation) -> list[Convolution]:
    first, *more = from_torch(conv.nn)
    W = first.weights.to_dense(fill_value=0)
    own = W.dtype.type(1 + float(conv.eps)) * W
    layers = [
        Convolution(w, layer.bias, self_weights=v, activation=layer.activation, clip=layer.clip)
        for layer, w, v in ((first, W, own), *((each, None, each.weights) for each in more))
    ]
    if activation == "relu" and layers[-1].layer.activation == "identity":
        layers.append(Convolution(self_weights=np.eye(layers[-1].layer.ncols, dtype=W.dtype)))
    return layers


def _weights(linear: Any) -> np.ndarray:
    return linear.weight.detach().cpu().numpy().T  # PyTorch stores outputs x inputs


def _bias(bias: Any) -> Any:
    return 0.0 if bias is None else bias.detach().cpu().numpy()


_READERS = {"GCNConv": _gcn, "SGConv": _sgc, "SAGEConv": _sage, "GINConv": _gin}
