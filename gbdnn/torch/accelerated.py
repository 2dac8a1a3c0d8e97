"""`gbdnn.torch.accelerate`: a copy of a model whose sparse linear layers gbdnn computes.

A module of the copy holds the layers of a network as two tensors that nobody else refers to:
CSR indices, and values and biases. The network is compiled from them, before the first call or
after they were copied, converted or loaded. Graphs of torch.compile and torch.export contain
them, and an operator that does the same. PyTorch computes what gbdnn cannot, with dense weights
that are made for the call.
"""

from __future__ import annotations

import copy
import math
import sys
from functools import cache, partial
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import torch
from torch import nn
from torch.nn.functional import linear as dense_linear
from torch.nn.utils.parametrize import type_before_parametrizations

from gbdnn.arrays.checks import as_number
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.errors import ArgumentError, ForkError, NonFiniteError, ShapeError, require_kind
from gbdnn.io.frameworks.chain import Chain
from gbdnn.io.frameworks.torch_tensors import parameter
from gbdnn.io.frameworks.torch_trace import add_module, is_linear, require_visible
from gbdnn.kernels import costs
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.serving import CompiledNetwork
from gbdnn.torch import private
from gbdnn.torch.sparse_layers import SparseLinear, SparseSequential

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.model.layer import Activation

__all__ = ["accelerate"]

_TENSORS = torch.Tensor, nn.Parameter
_DTYPES = torch.float32, torch.float64
_LINEARS = nn.Linear, SparseLinear
_SEQUENTIALS = nn.Sequential.forward, SparseSequential.forward
# What may follow a Linear in a chain. All but BatchNorm1d compute each number alone.
_FOLLOWING = (
    nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Identity, nn.Dropout, nn.AlphaDropout, nn.BatchNorm1d,
)  # fmt: skip
_KEYS = "weight", "bias", "running_mean", "running_var"
_NO_GRADIENT = (
    "accelerated modules compute no gradients; train the original model and call accelerate again,"
    " or use gbdnn.torch.SparseLinear"
)
_NO_WEIGHTS = (
    "accelerated modules load no weights; load them into the original model and call accelerate"
    " again"
)


def accelerate(model: nn.Module, *, density: float | None = None) -> nn.Module:
    """Return a copy of a pruned model for inference, whose sparse linear layers gbdnn computes.

    The copy is a snapshot: it returns what the model returns now in evaluation mode, whatever
    happens to the model later. Call `accelerate` again after training.

    Parameters
    ----------
    model : torch.nn.Module
        It is not modified.
    density : float, optional
        Let gbdnn compute each linear layer whose fraction of nonzero weights is at most this.
        Default: a cost model decides, assuming 32 inputs per call.

    Returns
    -------
    torch.nn.Module
        In evaluation mode. Modules without parameters replace each ``nn.Linear`` and `SparseLinear`
        that gains, and in an ``nn.Sequential`` each chain of Linear, BatchNorm1d, ReLU, ReLU6,
        ``Hardtanh(0, c)``, Dropout and Identity that gains; print it to see which. All other
        modules are copies, whose parameters require no gradient.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        `model` is not a module; `density` is not between 0 and 1. In a call of the copy: a gradient
        is required. ``train()``; ``load_state_dict`` with the weights of a replaced layer.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh())
    >>> _ = model[0].weight.data[:, 25:].zero_()
    >>> fast = gbdnn.torch.accelerate(model)
    >>> fast
    Sequential(
      (0): AcceleratedChain(512-512, density=0.049)
      (1): Tanh()
    )
    >>> x = torch.rand(3, 512)
    >>> torch.allclose(fast(x), model(x), atol=1e-5)
    True
    """
    require_kind(model, nn.Module, "model must be a torch.nn.Module")
    if density is not None and not 0 <= as_number(density, "density") <= 1:
        raise ArgumentError(f"density must be between 0 and 1, not {density}")
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        made = _copied(model)
        for part in [*made.modules()]:
            if _is_visible(part) and type(part).forward in _SEQUENTIALS:
                _fuse(part, density)
        for part in [*made.modules()]:  # chains have replaced the others
            if accelerated := _chain([part], density):
                part.__class__, part.__dict__ = AcceleratedChain, vars(accelerated)
    for part in made.modules():
        replaced = [x for x in part.children() if isinstance(x, AcceleratedChain)]
        if replaced and hasattr(part, "activation_relu_or_gelu"):
            part.activation_relu_or_gelu = 0  # a TransformerEncoderLayer reads no weights then
    return made


class _Accelerated(nn.Module):
    """A module that replaces others."""

    def train(self, mode: bool = True) -> _Accelerated:
        """Accept ``train(False)`` only."""
        if mode:
            raise ArgumentError(_NO_GRADIENT)
        return super().train(mode)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        """Report the weights of replaced modules."""
        names = {x.removeprefix(prefix).split(".")[0] for x in state_dict if x.startswith(prefix)}
        if names - self._modules.keys():
            args[-1].append(f"{prefix}: {_NO_WEIGHTS}")

    def __getitem__(self, key: Any) -> NoReturn:
        raise ArgumentError(
            "an accelerated Sequential computes several modules as one; take single modules from"
            " the original model, or hold them in an nn.ModuleList"
        )


class AcceleratedChain(_Accelerated):
    """Consecutive modules of a model as one compiled network."""

    def __init__(self, network: Network, is_flat: bool) -> None:
        super().__init__()
        indices, numbers, sizes, limits = [], [], [network.shape[0]], list[float]()
        for layer in network:
            csc = layer.W.ss.export("csc", sort=True)
            indices += [csc[key].astype(np.int64) for key in ("indptr", "row_indices")]
            numbers += [np.broadcast_to(csc["values"], layer.edges)]
            numbers += [np.broadcast_to(np.asarray(layer.bias, layer.dtype), layer.ncols)]
            sizes += [layer.edges, layer.ncols]
            limits += [0.0 if layer.activation == "relu" else -math.inf]
            limits += [math.inf if layer.clip is None else layer.clip]
        self._indices, self._numbers = (torch.from_numpy(np.hstack(x)) for x in (indices, numbers))
        self._sizes, self._limits = sizes, limits  # numbers of inputs, edges, outputs, edges, ...
        self._is_flat = is_flat
        self(self._numbers.new_zeros(1, sizes[0]))  # compiles it

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return the activations of the last layer for an input of shape ``(..., features)``."""
        if self._is_flat and input.ndim != 2:  # BatchNorm1d normalises the second axis
            shape = f"(inputs, features), not {(*input.shape,)}"
            raise ShapeError(f"a BatchNorm1d was merged, so the input must have shape {shape}")
        held = self._indices, self._numbers, self._sizes, self._limits
        if not isinstance(input, torch.Tensor):  # torch.fx traces it
            return _dense(input, *held)
        if torch.is_grad_enabled() and input.requires_grad:
            raise ArgumentError(_NO_GRADIENT)
        if not self._suits(input):
            return _dense(input, *held)
        if torch.compiler.is_compiling():
            return _network(input, *held)
        compute = _untraced() if "torch._dynamo" in sys.modules else _computed
        return torch.from_numpy(compute(input.detach().resolve_neg().numpy(), *held))

    def _suits(self, x: torch.Tensor) -> bool:
        """Whether gbdnn computes this input, and PyTorch does nothing but compute."""
        numbers = self._numbers
        if x.dtype is not numbers.dtype or not (x.is_cpu and numbers.is_cpu) or x.is_nested:
            return False
        if x.dtype not in _DTYPES or x.layout is not torch.strided or not x.ndim:
            return False
        if x.shape[-1] != self._sizes[0] or torch.is_autocast_enabled("cpu"):
            return False
        return torch.compiler.is_compiling() or (type(x) in _TENSORS and not private.records())

    @property
    def weight(self) -> torch.Tensor:
        """A copy of the weight of a single Linear, in CSR. Some models read its dtype."""
        _, *csr, _, _, _ = self._single()
        return torch.sparse_csr_tensor(*csr, self._sizes[::-2], check_invariants=False)

    @property
    def bias(self) -> torch.Tensor:
        """A copy of the bias of a single Linear, or zeros."""
        return self._single()[4]

    def _single(self) -> Any:
        if self._limits != [-math.inf, math.inf]:
            raise AttributeError("several modules have no common weight")
        return next(
            _layers(self._indices.clone(), self._numbers.clone(), self._sizes, self._limits)
        )

    def _apply(self, fn: Any, recurse: bool = True) -> AcceleratedChain:
        """Convert the numbers. PyTorch computes with other dtypes and on other devices."""
        self._numbers = fn(self._numbers)
        self._indices = self._indices.to(self._numbers.device)
        return self

    def extra_repr(self) -> str:
        """Return the text in the parentheses of the representation."""
        neurons, edges = self._sizes[::2], sum(self._sizes[1::2])
        density = edges / max(sum(n * m for n, m in pairwise(neurons)), 1)
        return f"{'-'.join(map(str, neurons))}, density={density:.2g}"


class AcceleratedSequential(_Accelerated):
    """The chains and the other modules of an ``nn.Sequential``, made by `accelerate`."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return the output of the last module."""
        for part in self._modules.values():
            input = part(input)  # noqa: A001
        return input


def _copied(model: nn.Module) -> nn.Module:
    """Return a copy in evaluation mode that requires no gradient."""
    memo = dict[int, Any]()
    for part in model.modules():
        for x in (*part._parameters.values(), *part._buffers.values(), *vars(part).values()):
            if isinstance(x, torch.Tensor) and not (x.is_leaf and x.layout is torch.strided):
                y = x.detach().clone()  # of a pruned or sparse weight, which deepcopy refuses
                memo[id(x)] = nn.Parameter(y, False) if isinstance(x, nn.Parameter) else y
    return copy.deepcopy(model, memo).eval().requires_grad_(False)


def _fuse(module: nn.Module, density: float | None) -> None:
    """Let a Sequential compute each chain of several modules as one."""
    stages = dict[str, nn.Module]()
    for is_known, run in groupby(
        module._modules.items(), lambda x: _size(x[1], density) is not None
    ):
        names, parts = zip(*run, strict=True)
        start = next((k for k, x in enumerate(parts) if is_known and is_linear(x)), len(parts))
        accelerated = _chain(parts[start:], density) if len(parts) - start > 1 else None
        end = start if accelerated else len(parts)
        stages |= zip(names[:end], parts[:end], strict=True)
        stages |= {f"{names[start]}-{names[-1]}": accelerated} if accelerated else {}
    if stages.keys() != module._modules.keys():
        module.__class__, module._modules = AcceleratedSequential, stages


def _chain(parts: Sequence[nn.Module], density: float | None) -> AcceleratedChain | None:
    """Return a module that computes a Linear and others, or None if it cannot or does not pay."""
    sizes = [x for x in (_size(part, density) for part in parts) if x]
    if len(sizes) < len(parts) or not is_linear(parts[0]):
        return None
    if density is None and not costs.accelerating_pays(sizes):
        return None
    builder = Chain(None)
    try:
        for part in parts:
            add_module(builder, part, type(part).__qualname__)
        network = builder.network()
    except (ArgumentError, ShapeError):  # such as numbers that are not finite
        return None
    return AcceleratedChain(network, nn.BatchNorm1d in map(type, parts))


def _size(part: nn.Module, density: float | None) -> tuple[int, int, int] | None:
    """Return edges, inputs and outputs of a Linear, zeros if it may follow one, or None."""
    kind = type_before_parametrizations(part)
    if kind not in (*_LINEARS, *_FOLLOWING) or not _is_visible(part):
        return None
    tensors = [parameter(part, key) for key in _KEYS if hasattr(part, key)]
    tensors = [x for x in tensors if x is not None]
    if not all(type(x) in _TENSORS and x.is_cpu and x.dtype in _DTYPES for x in tensors):
        return None
    if kind in _FOLLOWING:
        return 0, 0, 0
    W = tensors[0]
    values = W if W.layout is torch.strided else W.to_sparse_coo().coalesce().values()
    edges = int(values.count_nonzero())
    is_sparse = W.ndim == 2 and (density is None or edges <= density * W.numel())
    return (edges, W.shape[1], W.shape[0]) if is_sparse else None


def _is_visible(part: nn.Module) -> bool:
    """Whether calling a module does what its class does."""
    try:
        require_visible("", part)
    except ArgumentError:
        return False
    return True


# -- the operator

_runs: Any = private.TensorMap()  # compiled networks by number of threads, by their `numbers`


def _layers(indices: Any, numbers: Any, sizes: list[int], limits: list[float]) -> Iterator[Any]:
    """Yield inputs, crow_indices, col_indices, values, bias and both limits of each layer."""
    counts = [*zip(sizes[1::2], sizes[2::2], strict=True)]
    places = iter(indices.split([n for edges, outputs in counts for n in (outputs + 1, edges)]))
    values, bounds = iter(numbers.split([n for pair in counts for n in pair])), iter(limits)
    return zip(sizes[:-1:2], places, places, values, values, bounds, bounds, strict=True)


def _dense(x: torch.Tensor, *held: Any) -> torch.Tensor:
    """Return what PyTorch computes with dense weights."""
    for inputs, crow, col, values, bias, low, high in _layers(*held):
        rows = torch.arange(len(bias), device=crow.device).repeat_interleave(crow.diff())
        W = values.new_zeros(len(bias), inputs).index_put((rows, col), values)
        x = dense_linear(x, W, bias)
        x = x if (low, high) == (-math.inf, math.inf) else x.clamp(low, high)
    return x


def _compiled(*held: Any) -> Any:
    """Return a function that compiles the network for a number of threads, from a cache."""
    layers = []
    for inputs, *tensors, low, high in _layers(*held):
        crow, col, values, bias = (x.numpy().copy() for x in tensors)
        rows = SparseRows(crow.view(np.uint64), col.view(np.uint64), values, inputs)
        activation: Activation = "relu" if low == 0 else "identity"
        clip = None if high == math.inf else high
        layers.append(Layer(rows.matrix().T, bias, activation=activation, clip=clip))
    return cache(partial(CompiledNetwork, Network(layers)))


def _computed(x: np.ndarray, *held: Any) -> np.ndarray:
    """Return the activations of the last layer."""
    *_, numbers, sizes, _ = held
    rows = x if x.ndim == 2 else x.reshape(-1, sizes[0])
    try:
        if (run := _runs.get(numbers)) is None:
            run = _runs[numbers] = _compiled(*held)
        Y = run(torch.get_num_threads())(rows)
    except (ArgumentError, NonFiniteError, ForkError):  # not finite, or a forked process
        Y = _dense(torch.from_numpy(rows), *held).numpy()
    return Y if x.ndim == 2 else Y.reshape(*x.shape[:-1], sizes[-1])


@cache
def _untraced() -> Any:
    """Return `_computed` for frames that torch.compile neither compiles nor leaves alone."""
    return torch.compiler.disable(_computed)  # which imports torch._dynamo


@torch.library.custom_op(
    "gbdnn::network", mutates_args=(),
    schema="(Tensor x, Tensor indices, Tensor numbers, int[] sizes, float[] limits) -> Tensor",
)  # fmt: skip
def _network(x, indices, numbers, sizes, limits):  # type: ignore[no-untyped-def]
    """Compute a chain in a compiled or exported graph."""
    return torch.from_numpy(_computed(x.detach().numpy(), indices, numbers, sizes, limits))


@_network.register_fake
def _(x, indices, numbers, sizes, limits):  # type: ignore[no-untyped-def]
    return x.new_empty(*x.shape[:-1], sizes[-1])
