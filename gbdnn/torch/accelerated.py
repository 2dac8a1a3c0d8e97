"""Modules that gbdnn computes: those of PyTorch, with another class.

Parameters, buffers, hooks and attributes are those of the original. The dense weights are the
truth: a module compiles them, and again if they have changed, and passes the memory of ordinary
tensors to the compiled network. PyTorch computes with the dense weights wherever it records or
transforms operations. A change of weights is noticed by

- PyTorch's count of changes in place, which a hook advances after each step of an optimizer, as
  fused optimizers do not;
- a few numbers of each weight, bias and statistic, which each call compares: code that writes
  ``weight.data``, such as that which merges adapters, changes whole tensors.
"""

from __future__ import annotations

import ctypes
from functools import cache, partial, reduce
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.functional import linear as dense_linear
from torch.nn.utils import prune
from torch.optim.optimizer import register_optimizer_step_post_hook

from gbdnn.errors import ArgumentError, ForkError, NonFiniteError, ShapeError
from gbdnn.io.frameworks.torch_trace import FOLLOWING, LINEARS, network_of
from gbdnn.serving import CompiledNetwork
from gbdnn.torch import private

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "KINDS",
    "AcceleratedLinear",
    "AcceleratedSequential",
    "Chain",
    "Pruning",
    "is_ordinary",
    "masks_of",
]

_TENSORS = (torch.Tensor, nn.Parameter)
_HOOKS = "_forward_hooks", "_forward_pre_hooks"
_PROBES = 4  # numbers of a tensor that a call compares
_NUMBERS = {torch.float32: ctypes.c_float, torch.float64: ctypes.c_double}


def is_ordinary(x: Any) -> bool:
    """Whether `x` is a tensor and an operation on it does nothing but compute."""
    return type(x) in _TENSORS and not (private.records() or torch.is_autocast_enabled("cpu"))


class Chain:
    """Consecutive modules as one compiled network, and their state when they were compiled."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        self.parts, self.linears = list(parts), [x for x in parts if type(x) in KINDS]
        self.note()
        # PyTorch normalises the second axis.
        self._ranks = range(2, 3) if nn.BatchNorm1d in map(type, parts) else range(1, 65)
        try:
            network = network_of(parts)
        except (ArgumentError, ShapeError, RuntimeError) as err:
            self.fault = str(err).partition(";")[0]
        else:
            self.shape, self._compiled = network.shape, cache(partial(CompiledNetwork, network))
            self.dtype = torch.float64 if network.dtype == "f8" else torch.float32
            self.fault = (
                "" if all(map(self._is_suited, self.tensors)) else "mixed dtypes or devices"
            )

    def _is_suited(self, x: torch.Tensor) -> bool:
        is_held = x.device.type in ("cpu", "meta") and x.layout == torch.strided
        return is_held and not x.is_inference() and x.dtype in (self.dtype, torch.int64)

    def note(self) -> None:
        """Remember the state of the modules."""
        found = [(x, key) for y in self.parts for x in (y._parameters, y._buffers) for key in x]
        found += [(vars(y), key) for y in self.parts for key in FOLLOWING.get(type(y), ())]
        self._state = [(held, key, held[key], *_version(held[key])) for held, key in found]
        self.tensors = [x for _, _, x, *_ in self._state if isinstance(x, torch.Tensor)]
        self._aliases = [x.detach() for x in self.tensors]  # no other tensor gets their addresses
        self._probes = [_probe(x) for x in self._aliases if x.ndim]
        _all_chains.add(self)
        # An instance may have a forward of its own.
        self._own: list[Any] = [x for y in map(vars, self.parts) for x in (y, *map(y.get, _HOOKS))]
        self._counts = [*map(len, self._own)]

    def is_current(self, parts: Sequence[nn.Module]) -> bool:
        """Whether it computes these modules, as far as PyTorch's counts and the probes show."""
        for held, key, x, version, address in self._state:
            if held.get(key) is not x:
                return False
            if version is not None and (x._version != version or x.data_ptr() != address):
                return False
        if any(take(memory) != values for take, memory, values in self._probes):
            return False
        return self.parts == parts and [*map(len, self._own)] == self._counts

    def result(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return the activations for an ordinary tensor, or None if PyTorch has to compute them."""
        rank = x.ndim
        if self.fault or x.dtype is not self.dtype or rank not in self._ranks:
            return None
        if x.size(-1) != self.shape[0]:
            return None
        x = x.detach() if x.requires_grad else x
        try:
            rows = (x if rank == 2 else x.reshape(-1, self.shape[0])).numpy()
        except (RuntimeError, TypeError):  # on another device, of another layout, negated
            return None
        try:
            Y = torch.from_numpy(self._compiled(torch.get_num_threads())(rows))
        except (ArgumentError, NonFiniteError, ForkError):  # not finite, or a forked process
            return None
        return Y if rank == 2 else Y.reshape(*x.shape[:-1], self.shape[1])

    def dense(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations that PyTorch computes, without hooks."""
        return reduce(lambda y, part: part.forward(y), self.parts, x)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy is compiled again


def _result(
    module: nn.Module, at: int, parts: Sequence[nn.Module], x: torch.Tensor
) -> torch.Tensor | None:
    """Return the activations of the chain of parts at a position of a module, or None.

    The chain is compiled again if the parts have changed, and dropped while weights are trained.
    """
    chains: dict[int, Chain | None] = vars(module).setdefault("_chains", {})
    chain = chains.get(at)
    if chain is not None and not chain.is_current(parts):
        chain = None
    if torch.is_grad_enabled():
        tensors = chain.tensors if chain else [y for part in parts for y in part.parameters()]
        if any(y.requires_grad for y in tensors):
            chains.pop(at, None)
            return None
        if x.requires_grad:
            return None
    if chain is None:
        chain = chains[at] = Chain(parts)
    return chain.result(x)


class AcceleratedLinear(nn.Linear):
    """A `torch.nn.Linear` computed by gbdnn on the CPU, with ``torch.get_num_threads()`` threads.

    Made by `accelerate`; its parameters, buffers and attributes are those of the original. PyTorch
    computes with the dense weights if a gradient is required, under autocast, ``vmap`` and tracing,
    for inputs that are not finite, and for other dtypes and devices.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> linear = torch.nn.Linear(4, 2).eval()
    >>> _ = linear.weight.data.copy_(torch.eye(2, 4)), linear.bias.data.zero_()
    >>> sparse = gbdnn.torch.accelerate(linear, density=1)
    >>> sparse
    AcceleratedLinear(in_features=4, out_features=2, bias=True)
    >>> sparse(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([1., 2.])
    """

    if TYPE_CHECKING:  # TorchScript does not know the type
        weight: nn.Parameter
    sparse_weight: Any = None  # instead of a dense weight, which is on the device "meta"

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return ``input @ weight.T + bias`` for an input of shape ``(..., in_features)``."""
        if torch.jit.is_scripting():
            return dense_linear(input, self.weight, self.bias)
        else:  # noqa: RET505 -- TorchScript compiles one branch only
            if torch.compiler.is_compiling():
                found = _operator(input, self.weight, self.bias) if self._can(input) else None
            else:
                found = _result(self, 0, [self], input) if is_ordinary(input) else None
            if found is not None:
                return found
            if self.sparse_weight is not None and self.weight.is_meta:
                raise ArgumentError(
                    "this call needs the dense weight, which accelerate(keep_dense=False) dropped"
                )
            return dense_linear(input, self.weight, self.bias)

    def _can(self, x: torch.Tensor) -> bool:
        """Whether a compiled graph may call gbdnn's operator."""
        tensors = [each for each in (x, self.weight, self.bias) if each is not None]
        needs_grad = torch.is_grad_enabled() and any(y.requires_grad for y in tensors)
        is_other = torch.onnx.is_in_onnx_export() or torch.is_autocast_enabled("cpu")
        return isinstance(self.weight, nn.Parameter) and not (needs_grad or is_other)

    def __getattr__(self, name: str) -> Any:
        if name in ("weight", "bias") and f"{name}_mask" in self._buffers:
            return self._parameters[f"{name}_orig"] * self._buffers[f"{name}_mask"]
        return super().__getattr__(name)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Write the weight that `sparse_weight` replaces, too."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.sparse_weight is not None and self.weight.is_meta:
            destination[prefix + "weight"] = self.dense_weight()

    def _load_from_state_dict(self, *args: Any) -> None:
        """Replace `sparse_weight` by the loaded weight, too."""
        is_dropped = self.sparse_weight is not None and self.weight.is_meta
        if is_dropped:
            self.weight = nn.Parameter(self.dense_weight(), requires_grad=False)
        super()._load_from_state_dict(*args)
        if is_dropped:
            self.drop_dense()

    def drop_dense(self) -> None:
        """Keep `sparse_weight` only."""
        self.sparse_weight = network_of([self])[0].W
        self.weight = nn.Parameter(self.weight.to("meta"), requires_grad=False)

    def dense_weight(self) -> torch.Tensor:
        """Return the dense form of `sparse_weight`."""
        W = self.sparse_weight.T.new().to_dense(fill_value=0)
        return torch.from_numpy(W).to(self.weight.dtype)

    def extra_repr(self) -> str:
        """Return the text in the parentheses of the representation."""
        return super().extra_repr() + ", keep_dense=False" * (self.sparse_weight is not None)


KINDS = nn.Linear, AcceleratedLinear
LINEARS.add(AcceleratedLinear.forward)


class AcceleratedSequential(nn.Sequential):
    """A `torch.nn.Sequential` in which gbdnn computes chains of modules in one call each.

    Made by `accelerate`. The modules of a chain are called one by one if any of them has hooks or
    is in training mode, and for inputs that `AcceleratedLinear` leaves to PyTorch. A slice has no
    chains.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    >>> _ = model[0].weight.data[:, 25:].zero_()
    >>> type(gbdnn.torch.accelerate(model)).__name__
    'AcceleratedSequential'
    """

    _stops = MappingProxyType[int, int]({})  # the end of each chain by its start

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return the output of the last module."""
        if torch.jit.is_scripting():
            for part in self:
                input = part(input)  # noqa: A001
            return input
        else:  # noqa: RET505 -- TorchScript compiles one branch only
            is_other = torch.compiler.is_compiling() or private.is_watched()
            stops = {} if is_other else self._stops
            parts, at = [*self._modules.values()], 0
            while at < len(parts):
                found, stop = None, stops.get(at, 0)
                if stop and is_ordinary(input):
                    found = _result(self, at, parts[at:stop], input)
                input = parts[at](input) if found is None else found  # noqa: A001
                at = at + 1 if found is None else stop
            return input


_layers: Any = private.TensorMap()
_LINEAR = "(Tensor x, Tensor weight, Tensor? bias) -> Tensor"


@torch.library.custom_op("gbdnn::linear", mutates_args=(), schema=_LINEAR)
def _operator(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Compute a layer in a compiled or exported graph."""
    layer, state = _layers.get(weight, (None, ()))
    if state != _version(weight):  # which no alias shares here
        layer = AcceleratedLinear(1, 1, bias=False, device="meta")
        layer._parameters["weight"] = weight.detach()
        _layers[weight] = layer, _version(weight)
    found = _result(layer, 0, [layer], x)
    found = dense_linear(x, weight) if found is None else found
    return found if bias is None else found.add_(bias)


@_operator.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


class Pruning(prune.Identity):
    """The hook of a pruned AcceleratedLinear, whose weight applies the mask when it is needed."""

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        """Apply the mask to a module of PyTorch."""
        if not isinstance(module, AcceleratedLinear):
            super().__call__(module, inputs)

    def remove(self, module: nn.Module) -> None:
        """Make the masked weight the parameter."""
        super().__call__(module, ())  # `remove` deletes the attribute
        super().remove(module)


_all_chains = WeakSet[Chain]()


def _count_step(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Count the step of an optimizer as a change of the compiled tensors among its parameters."""
    if chains := list(_all_chains):
        groups = optimizer.param_groups
        held = [x for group in groups for x in group["params"] if type(x) in _TENSORS]
        changed = {x.data_ptr() for x in held if x.layout == torch.strided}
        for x in (x for chain in chains for x in chain.tensors if not x.is_inference()):
            if x.layout == torch.strided and not x.is_meta and x.data_ptr() in changed:
                torch.autograd.graph.increment_version(x)


register_optimizer_step_post_hook(_count_step)


def _probe(x: torch.Tensor) -> tuple[Any, Any, Any]:
    """Return a function that takes some nonzero values from the memory of a tensor, and both."""
    if x.dtype not in _NUMBERS or x.layout != torch.strided or x.is_meta or not x.numel():
        return len, (), 0
    found = x.nonzero() if x.count_nonzero() else torch.zeros(1, x.ndim, dtype=torch.int64)
    some = found[torch.linspace(0, len(found) - 1, _PROBES).long()]
    places = (some * torch.tensor(x.stride())).sum(1).tolist()
    memory = (_NUMBERS[x.dtype] * (1 + max(places))).from_address(x.data_ptr())
    take = itemgetter(*places)
    return take, memory, take(memory)


def _version(x: Any) -> tuple[Any, Any]:
    """Return a tensor's number of changes in place and its address, or None for both."""
    if not isinstance(x, torch.Tensor) or x.is_inference() or x.layout != torch.strided:
        return None, None
    return x._version, x.data_ptr()


def masks_of(module: nn.Module) -> dict[str, Any]:
    """Return the pruning hooks by the name of their parameter."""
    hooks = module._forward_pre_hooks.values()
    return {x._tensor_name: x for x in hooks if isinstance(x, prune.BasePruningMethod)}
