"""PyTorch's linear layers as a `Network` and back: a module, or a ``state_dict``.

PyTorch holds a weight as outputs x inputs; here it is inputs x outputs. `from_torch` does not
import PyTorch: a caller with a module has done so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_word, require_room
from gbdnn.errors import ArgumentTypeError, require_kind
from gbdnn.io.frameworks.chain import Chain, add_everywhere, unsupported
from gbdnn.io.frameworks.scipy import require_activation
from gbdnn.io.frameworks.torch_tensors import add_linear, import_torch
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network

if TYPE_CHECKING:
    import torch

    from gbdnn.model.layer import Activation

_PARAMETERS = {"weight", "bias", "weight_orig", "weight_mask", "bias_orig", "bias_mask"}


def from_torch(
    source: torch.nn.Module | Mapping[str, Any],
    *,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
) -> Network:
    """Make a network of a PyTorch module, or of its ``state_dict``.

    Parameters
    ----------
    source : torch.nn.Module or mapping of str to tensors
        A module whose forward is one chain of ``Linear``, ``ReLU``, ``ReLU6``, ``Hardtanh(0, c)``,
        their functions, and ``clamp(0, c)``; ``Identity``, ``Dropout``, ``Flatten`` and a view of
        a row per input (``x.view(x.size(0), -1)``) have no effect. It may be nested, or have a
        forward that ``torch.fx`` can trace. Or a ``state_dict`` of linear layers in the order of
        their use, tensors or NumPy arrays. Weights may be sparse, of any layout; the masks of
        ``torch.nn.utils.prune`` are applied. All arrays are copied.
    clip : float, optional
        For a ``state_dict``, which has no activations: upper limit of every ReLU; default: no
        limit.
    last_activation : {"identity", "relu"}, optional
        For a ``state_dict``: of the last layer; default: ``"identity"``. All others have a ReLU.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: FP64 for double, FP32 for float, half and bfloat16; the layers must agree.

    Returns
    -------
    Network
        Its bias rule is ``all``. Dropout has no effect, whatever the module's mode.

    Raises
    ------
    ArgumentError
        A module, function or parameter is not supported (a convolution, a skip, a lower bound
        other than 0); it is named. A value is NaN or infinite.
    ArgumentTypeError
        `source` is neither, or a module comes with options for a ``state_dict``.
    ShapeError
        Two layers do not fit.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> state = {"fc.weight": np.array([[0.5, 0.0, -1.0]]), "fc.bias": np.array([0.25])}
    >>> gbdnn.io.from_torch(state)  # or model.state_dict(), or the model itself
    Network: 1 layer, 3 inputs to 1 outputs, 2 edges, FP64
      layer  shape  edges
      0      3 x 1      2  bias 0.25 (all), identity
    """
    wanted = None if dtype is None else as_dtype(dtype)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.nn.Module):
        if clip is not None or last_activation is not None:
            raise ArgumentTypeError("clip= and last_activation= beside a module: it has its own")
        from gbdnn.io.frameworks.torch_trace import trace

        return trace(source, Chain(wanted)).network()
    if isinstance(source, Mapping):
        last = "identity" if last_activation is None else last_activation
        require_activation(last)
        Layer(np.empty((0, 0)), clip=clip, dtype=wanted)  # raises for an option without meaning
        return _from_state(source, clip, last, Chain(wanted)).network()
    raise ArgumentTypeError(
        f"source: a torch.nn.Module or its state_dict is needed, not {type(source).__qualname__}"
    )


def to_torch(net: Network, *, layout: str = "strided") -> torch.nn.Sequential:
    """Return a network as a ``torch.nn.Sequential`` of Linear, ReLU and Hardtanh.

    Parameters
    ----------
    net : Network
        A layer under the bias rule ``entries`` needs a ReLU and no positive bias, or no bias: then
        it gives the same answer under ``all``, PyTorch's rule.
    layout : {"strided", "sparse_csr"}, default "strided"
        Of the weights: dense tensors, or CSR tensors, which need less memory and take no gradient.

    Returns
    -------
    torch.nn.Sequential
        New parameters, of the network's dtype, on the CPU. A layer's limit is a
        ``Hardtanh(0, clip)``, or ``Hardtanh(-inf, clip)`` without a ReLU.

    Raises
    ------
    ArgumentError
        A layer under ``entries`` has no equivalent (it is named), or `layout` is none of these.
    ArgumentTypeError, MissingPackageError
        `net` is not a Network; PyTorch is not installed.
    TooLargeError
        Dense weights do not fit into memory.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> gbdnn.io.to_torch(gbdnn.Network([gbdnn.Layer(np.eye(3), clip=6)]))
    Sequential(
      (0): Linear(in_features=3, out_features=3, bias=False)
      (1): Hardtanh(min_val=0.0, max_val=6.0)
    )
    """
    require_kind(net, Network, "net: a Network is needed")
    as_word(layout, "layout", ("strided", "sparse_csr"))
    torch = import_torch()
    add_everywhere(net)
    modules: list[Any] = []
    for k, layer in enumerate(net):
        biased = bool(np.any(layer.bias)) or np.ndim(layer.bias) > 0
        # On the meta device nothing is drawn from PyTorch's generator.
        linear = torch.nn.Linear(*layer.shape, bias=biased, device="meta")
        rows, columns, values = layer.weights.to_coo()
        places = torch.from_numpy(np.stack([columns, rows]).astype(np.int64))
        size = (layer.ncols, layer.nrows)
        weight = torch.sparse_coo_tensor(
            places, torch.from_numpy(values), size, check_invariants=True
        )
        if layout == "strided":
            require_room(layer.dtype.itemsize * size[0] * size[1], f"layer {k}: dense weights")
            weight = weight.to_dense()
        else:
            weight = weight.to_sparse_csr()
        linear.weight = torch.nn.Parameter(weight, requires_grad=layout == "strided")
        if biased:
            bias = np.broadcast_to(np.asarray(layer.bias, layer.dtype), layer.ncols)
            linear.bias = torch.nn.Parameter(torch.from_numpy(bias.copy()))
        modules.append(linear)
        low = 0.0 if layer.activation == "relu" else -np.inf
        if layer.clip is not None:
            modules.append(torch.nn.Hardtanh(low, layer.clip))
        elif layer.activation == "relu":
            modules.append(torch.nn.ReLU())
    return torch.nn.Sequential(*modules)


def _from_state(
    state: Mapping[str, Any], clip: float | None, last: Activation, chain: Chain
) -> Chain:
    layers: dict[str, dict[str, Any]] = {}
    for key, tensor in state.items():
        if not hasattr(tensor, "ndim") or not hasattr(tensor, "dtype"):
            raise ArgumentTypeError(f"state_dict: {key!r} is a {type(tensor).__qualname__}")
        module, _, parameter = str(key).rpartition(".")
        if parameter not in _PARAMETERS:
            raise unsupported(f"state_dict: {key!r}")
        layers.setdefault(module, {})[parameter] = tensor
    for k, (module, tensors) in enumerate(layers.items()):
        name = repr(module or "weight")
        add_linear(chain, tensors, name)
        if k < len(layers) - 1 or last == "relu":
            chain.clamp(0, clip, name)
    return chain
