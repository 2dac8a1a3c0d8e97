"""Conversion between networks and PyTorch: modules, ``state_dict``, and files.

PyTorch's weights have shape (outputs, inputs), those of gbdnn (inputs, outputs). `from_torch` does
not import PyTorch.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from gbdnn.arrays.checks import as_dtype, as_flag, as_word, require_room
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    naming,
    require_kind,
)
from gbdnn.io.formats import Assumed, Format
from gbdnn.io.frameworks.chain import Chain, add_everywhere, unsupported
from gbdnn.io.frameworks.scipy import require_activation
from gbdnn.io.frameworks.torch_tensors import add_linear, import_torch
from gbdnn.io.reading import foreign_errors, open_checked
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.optional import if_imported, require

if TYPE_CHECKING:
    from pathlib import Path

    import torch

    from gbdnn.model.layer import Activation

_DIGITS, _POSITION = re.compile("[0-9]+"), re.compile(r"(?<![^.])[0-9]+(?![^.])")
_PARAMETERS = {"weight", "bias", "weight_orig", "weight_mask", "bias_orig", "bias_mask"}


def from_torch(
    source: torch.nn.Module | Mapping[str, Any],
    *,
    activation: Activation | None = None,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
    logits: bool = False,
) -> Network:
    """Convert a PyTorch module, or its ``state_dict``, to a network.

    Parameters
    ----------
    source : torch.nn.Module, torch.export.ExportedProgram or mapping of str to tensors
        A module that ``torch.fx`` can trace to a chain of ``Linear``, ``ReLU``, ``ReLU6``,
        ``Hardtanh(0, c)``, their functions, ``clamp(0, c)`` and ``BatchNorm1d``; ``Identity``,
        ``Dropout``, ``Flatten`` and ``x.view(x.size(0), -1)`` are ignored. A forward may compute
        weights from parameters, such as ``F.linear(x, W * mask)``. Or a ``state_dict``
        with tensors or NumPy arrays, or a checkpoint that contains it as ``state_dict`` or
        ``model_state_dict``. A ``state_dict`` is read as a plain chain of linear layers in the
        order of its keys; pass models with branches or skip connections as modules. Weights may be
        sparse; masks of ``torch.nn.utils.prune`` are applied. All arrays are copied.
    activation : {"relu", "identity"}
        Required for a ``state_dict``, which has no activations, and only for it: activation of
        all layers but the last.
    clip : float, optional
        Only for a ``state_dict``: upper limit of every ReLU.
    last_activation : {"identity", "relu"}, optional
        Only for a ``state_dict``: activation of the last layer, default ``"identity"``.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: FP64 for double, FP32 for float, half and bfloat16; layers must agree.
    logits : bool, default False
        Only for a module: drop a Softmax, LogSoftmax or Sigmoid after the last layer, and
        everything after it.

    Returns
    -------
    Network
        With the bias rule ``all``.

    Raises
    ------
    ArgumentError
        A module, function or parameter is not supported (such as convolutions, skip connections,
        and lower bounds other than 0), or a value is not finite; the message names it. Or
        `activation` is missing.
    ArgumentTypeError
        `source` has another type, or is a module and options for a ``state_dict`` are given.
    ShapeError
        Two layers do not fit.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> state = {"fc.weight": np.array([[0.5, 0.0, -1.0]]), "fc.bias": np.array([0.25])}
    >>> gbdnn.io.from_torch(state, activation="relu")  # or the model itself
    Network: 1 layer, 3 inputs to 1 outputs, 2 edges, FP64
      layer  shape  edges
      0      3 x 1      2  bias 0.25 (all), identity
    """
    wanted, logits = None if dtype is None else as_dtype(dtype), as_flag(logits, "logits")
    module, exported = (
        if_imported("torch.nn", "Module"),
        if_imported("torch.export", "ExportedProgram"),
    )
    if exported is not None and isinstance(source, exported):
        source = source.module()
    if module is not None and isinstance(source, module):
        if (activation, clip, last_activation) != (None, None, None):
            raise ArgumentTypeError(
                "activation=, clip= and last_activation= cannot be combined with a module"
            )
        from gbdnn.io.frameworks.torch_trace import trace

        return trace(source, Chain(wanted), logits=logits).network()
    if isinstance(source, Mapping):
        last = "identity" if last_activation is None else last_activation
        require_activation(last)
        if activation is None:
            raise ArgumentError(
                'a state_dict does not contain activations; pass activation=, "relu" or'
                ' "identity", if the model is a plain chain of layers in the order of its keys,'
                " and the module to gbdnn.io.from_torch otherwise"
            )
        as_word(activation, "activation", ("relu", "identity"))
        Layer(np.empty((0, 0)), clip=clip, dtype=wanted)  # raises for an invalid option
        return _from_state(_state_of(source), clip, [activation, last], Chain(wanted)).network()
    raise ArgumentTypeError(
        f"source must be a torch.nn.Module or its state_dict, not {type(source).__qualname__};"
        " gbdnn.load reads a file"
    )


def to_torch(network: Network, *, layout: str = "strided") -> torch.nn.Sequential:
    """Convert a network to a ``torch.nn.Sequential`` of Linear, ReLU and Hardtanh.

    Parameters
    ----------
    network : Network
        PyTorch adds biases to every neuron, so layers with the bias rule ``entries`` must have no
        bias, or a ReLU and no positive bias.
    layout : {"strided", "sparse_csr"}, default "strided"
        Layout of the weights: dense tensors, or CSR tensors, which need less memory but have no
        gradient.

    Returns
    -------
    torch.nn.Sequential
        With new parameters of the network's dtype on the CPU. A clip becomes ``Hardtanh(0, clip)``,
        or ``Hardtanh(-inf, clip)`` without a ReLU.

    Raises
    ------
    ArgumentError
        A layer under ``entries`` has no equivalent (the message names it), or `layout` is invalid.
    ArgumentTypeError, MissingPackageError
        `network` is not a Network; PyTorch is not installed.
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
    require_kind(network, Network, "network must be a Network")
    as_word(layout, "layout", ("strided", "sparse_csr"))
    torch = import_torch()
    add_everywhere(network)
    modules: list[Any] = []
    for k, layer in enumerate(network):
        biased = bool(np.any(layer.bias)) or np.ndim(layer.bias) > 0
        # The meta device does not use PyTorch's random generator.
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


def _read(
    path: Path,
    *,
    activation: Activation | None = None,
    clip: float | None = None,
    last_activation: Activation | None = None,
    dtype: Any = None,
) -> Network:
    """Return the network of a ``state_dict`` or of safetensors, whose layers must be numbered.

    Files of whole modules are refused, because reading them would run code from the file.
    """
    torch = import_torch()
    with open_checked(path) as opened:
        start = opened.read(9)
        opened.seek(0)
        if start[:2] != b"PK" and start[8:] != b"{":
            raise FormatError(f"{path}: not a zip archive; save files of PyTorch before 1.6 again")
        why = "this file of weights needs safetensors"
        safe = require("safetensors.torch", "store", why) if start[8:] == b"{" else None
        with foreign_errors(path, "cannot be read"):
            try:
                state = (
                    safe.load(opened.read())
                    if safe
                    else torch.load(opened, map_location="cpu", weights_only=True)
                )
            except pickle.UnpicklingError as err:
                raise FormatError(
                    f"{path}: not a state_dict, or damaged; save model.state_dict() instead of the"
                    " model, because reading other objects would run code from the file"
                ) from err
    state = _in_order(state, path) if safe else _state_of(state)
    if not isinstance(state, Mapping) or not all(
        isinstance(tensor, torch.Tensor) for tensor in state.values()
    ):
        raise FormatError(
            f"{path}: the file does not contain a state_dict of tensors{_inside(state)}"
        )
    with naming(path):
        return from_torch(
            state, activation=activation, clip=clip, last_activation=last_activation, dtype=dtype
        )


def _write(net: Network, file: BinaryIO) -> None:
    """Write the ``state_dict`` of `to_torch`."""
    import_torch().save(to_torch(net).state_dict(), file)


def _state_of(checkpoint: Any) -> Any:
    """Return the state_dict in a checkpoint, or the checkpoint itself."""
    names = ("state_dict", "model_state_dict") if isinstance(checkpoint, Mapping) else ()
    states = (checkpoint[name] for name in names if isinstance(checkpoint.get(name), Mapping))
    return next(states, checkpoint)


def _inside(checkpoint: Any) -> str:
    """Return advice if the values of a dict are the state_dicts, or an empty string."""
    keys = [
        key
        for key, state in (checkpoint.items() if isinstance(checkpoint, Mapping) else ())
        if isinstance(state, Mapping) and state and all(hasattr(x, "ndim") for x in state.values())
    ]
    words = " or ".join(f"checkpoint[{key!r}]" for key in keys)
    return f"; pass {words}, which contains one, to gbdnn.io.from_torch" if keys else ""


def _in_order(weights: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return weights in the order of the numbers in their names; the file stores no order.

    A number that is a whole component of a name is a position in a Sequential. Numbers in words
    (``fc1``) may be sizes, so they must count up from 0 or 1.
    """
    modules = {name.rpartition(".")[0] for name in weights}
    kinds = {_DIGITS.sub("#", _POSITION.sub("@", module)) for module in modules}
    numbers = {tuple(map(int, _DIGITS.findall(module))) for module in modules}
    is_known = len(kinds) == 1 and len(numbers) == len(modules)
    for mark, column in zip(
        re.findall("[@#]", min(kinds, default="")), zip(*numbers, strict=False), strict=False
    ):
        letters = sorted({*column})
        ups = [list(range(start, start + len(letters))) for start in (0, 1)]
        is_known &= mark == "@" or len(letters) == 1 or letters in ups
    if not is_known:
        raise FormatError(
            f"{path}: safetensors files store no order of layers, and the names are not numbered"
            " from 0 or 1; pass a dict of the weights in order to gbdnn.io.from_torch"
        )
    names = sorted(weights, key=lambda name: [int(n) for n in _DIGITS.findall(name)])
    return {name: weights[name] for name in names}


def _from_state(
    state: Mapping[str, Any], clip: float | None, activations: list[Activation], chain: Chain
) -> Chain:
    layers: dict[str, dict[str, Any]] = {}
    for key, tensor in state.items():
        if not hasattr(tensor, "ndim") or not hasattr(tensor, "dtype"):
            raise ArgumentTypeError(
                f"state_dict: {key!r} must be a tensor, not {type(tensor).__qualname__}"
                f"{_inside(state)}"
            )
        module, _, parameter = str(key).rpartition(".")
        if parameter not in _PARAMETERS:
            raise unsupported(f"parameter {key!r}", "convert the module, not its state_dict")
        layers.setdefault(module, {})[parameter] = tensor
    for k, (module, tensors) in enumerate(layers.items()):
        name = repr(module or "weight")
        add_linear(chain, tensors, name)
        if activations[k == len(layers) - 1] == "relu":
            chain.clamp(0, clip, name)
    return chain


TORCH = Format(
    name="torch",
    read=_read,
    write=_write,
    options="activation clip last_activation",
    suffixes=(".pt", ".pth"),
    assumed=Assumed(last_activation="identity"),
)
