"""Acceleration of pruned PyTorch models: gbdnn computes their sparse linear layers.

`accelerate` changes the class of modules in a copy of a model: a `torch.nn.Linear` becomes a
`SparseLinear`, and a `torch.nn.Sequential` becomes a `SparseSequential`. Parameters, buffers, hooks
and attributes stay. The dense weights are the truth: a module compiles them, and again if they have
changed, and passes the memory of ordinary tensors to the compiled network. PyTorch computes with
the dense weights wherever it records or transforms operations.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from functools import cache, partial, reduce
from timeit import timeit
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gbdnn.arrays.checks import as_number
from gbdnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ForkError,
    NonFiniteError,
    ShapeError,
    require_kind,
)
from gbdnn.io.frameworks.torch_tensors import import_torch
from gbdnn.kernels import costs
from gbdnn.serving import CompiledNetwork

import_torch()

import torch  # noqa: E402 -- a MissingPackageError if it is not installed
from torch import nn  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.nn.functional import linear as dense_linear  # noqa: E402
from torch.nn.modules import module as modules  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402
from torch.utils.weak import WeakIdKeyDictionary  # noqa: E402

from gbdnn.io.frameworks.torch_trace import FOLLOWING, LINEARS, network_of  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Replacement", "Report", "SparseLinear", "SparseSequential", "accelerate"]
__dir__ = __all__.copy  # dir() lists the public names only


_DTYPES, _TENSORS = (torch.float32, torch.float64), (torch.Tensor, nn.Parameter)
_HOOKS = "_forward_hooks", "_forward_pre_hooks"
# What records or transforms operations: modes, torch.func, torch.jit.trace. Nothing public is as
# fast as a call of a small layer needs.
_modes, _tracing = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_transforms = torch._C._functorch.peek_interpreter_stack


class Replacement(NamedTuple):
    """The decision of `accelerate` about a linear layer.

    Attributes
    ----------
    name : str
        Name of the module in the model.
    shape : str
        Numbers of neurons, such as ``"768-3072"``.
    density : float
        Fraction of nonzero weights; NaN if not determined.
    is_replaced : bool
        Whether gbdnn computes the module.
    why : str
        Why it was not replaced; or the modules computed in the same call, and measured times.
    """

    name: str
    shape: str
    density: float
    is_replaced: bool
    why: str


class Report(list[Replacement]):
    """A list of `Replacement`, printed as a table.

    Parameters
    ----------
    iterable : iterable of Replacement
    """

    def __str__(self) -> str:
        rows = [("module", "neurons", "density", "computed by", "")]
        for x in self:
            density = "" if math.isnan(x.density) else f"{100 * x.density:.1f} %"
            by = "gbdnn" if x.is_replaced else "PyTorch"
            rows.append((x.name or "the model", x.shape, density, by, x.why))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _is_ordinary(x: Any) -> bool:
    """Whether `x` is a tensor and an operation on it does nothing but compute."""
    is_quiet = not _modes() and _transforms() is None and _tracing() is None
    is_plain = is_quiet and forward_ad._current_level < 0 and not torch.is_autocast_enabled("cpu")
    return type(x) in _TENSORS and is_plain


class _Chain:
    """Consecutive modules as one compiled network, and their state when they were compiled."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        self.parts, self.linears = list(parts), [x for x in parts if type(x) in _KINDS]
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
        # An instance may have a forward of its own.
        self._own: list[Any] = [x for y in map(vars, self.parts) for x in (y, *map(y.get, _HOOKS))]
        self._counts = [*map(len, self._own)]

    def is_current(self, parts: Sequence[nn.Module]) -> bool:
        """Whether it computes these modules; changes of ``x.data`` in place go unnoticed."""
        for held, key, x, version, address in self._state:
            if held.get(key) is not x:
                return False
            if version is not None and (x._version != version or x.data_ptr() != address):
                return False
        return self.parts == parts and [*map(len, self._own)] == self._counts

    def result(self, x: torch.Tensor) -> torch.Tensor | None:
        """Return the activations for an ordinary tensor, or None if PyTorch has to compute them."""
        rank = x.ndim
        if self.fault or x.dtype is not self.dtype or rank not in self._ranks:
            return None
        tensors = (x, *self.tensors) if torch.is_grad_enabled() else ()
        if x.size(-1) != self.shape[0] or any(y.requires_grad for y in tensors):
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


def _current(module: nn.Module, at: int, parts: Sequence[nn.Module]) -> _Chain:
    """Return the chain of parts at a position of a module, compiled again if they have changed."""
    chains: dict[int, _Chain | None] = vars(module).setdefault("_chains", {})
    if (chain := chains.get(at)) is None or not chain.is_current(parts):
        chain = chains[at] = _Chain(parts)
    return chain


class SparseLinear(nn.Linear):
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
    SparseLinear(in_features=4, out_features=2, bias=True)
    >>> sparse(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([1., 2.])
    """

    sparse_weight: Any = None  # instead of a dense weight, which is on the device "meta"

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return ``input @ weight.T + bias`` for an input of shape ``(..., in_features)``."""
        if torch.jit.is_scripting():
            return dense_linear(input, self.weight, self.bias)
        else:  # noqa: RET505 -- TorchScript compiles one branch only
            if torch.compiler.is_compiling():
                found = _operator(input, self.weight, self.bias) if self._can(input) else None
            else:
                found = _current(self, 0, [self]).result(input) if _is_ordinary(input) else None
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

    def extra_repr(self) -> str:
        """Return the text in the parentheses of the representation."""
        return super().extra_repr() + ", keep_dense=False" * (self.sparse_weight is not None)


_KINDS = nn.Linear, SparseLinear
LINEARS.add(SparseLinear.forward)


class SparseSequential(nn.Sequential):
    """A `torch.nn.Sequential` in which gbdnn computes chains of modules in one call each.

    Made by `accelerate`. The modules of a chain are called one by one if any of them has hooks or
    is in training mode, and for inputs that `SparseLinear` leaves to PyTorch. A slice has no
    chains.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    >>> _ = model[0].weight.data[:, 25:].zero_()
    >>> type(gbdnn.torch.accelerate(model)).__name__
    'SparseSequential'
    """

    _stops = MappingProxyType[int, int]({})  # the end of each chain by its start

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002 -- PyTorch's name
        """Return the output of the last module."""
        if torch.jit.is_scripting():
            for part in self:
                input = part(input)  # noqa: A001
            return input
        else:  # noqa: RET505 -- TorchScript compiles one branch only
            is_watched = modules._global_forward_hooks or modules._global_forward_pre_hooks
            stops = {} if is_watched or torch.compiler.is_compiling() else self._stops
            parts, at = [*self._modules.values()], 0
            while at < len(parts):
                found, stop = None, stops.get(at, 0)
                if stop and _is_ordinary(input):
                    found = _current(self, at, parts[at:stop]).result(input)
                input = parts[at](input) if found is None else found  # noqa: A001
                at = at + 1 if found is None else stop
            return input


_layers: Any = WeakIdKeyDictionary()
_LINEAR = "(Tensor x, Tensor weight, Tensor? bias) -> Tensor"


@torch.library.custom_op("gbdnn::linear", mutates_args=(), schema=_LINEAR)
def _operator(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Compute a layer in a compiled or exported graph."""
    layer, state = _layers.get(weight, (None, ()))
    if state != _version(weight):  # which no alias shares here
        layer = SparseLinear(1, 1, bias=False, device="meta")
        layer._parameters["weight"] = weight.detach()
        _layers[weight] = layer, _version(weight)
    found = _current(layer, 0, [layer]).result(x)
    found = dense_linear(x, weight) if found is None else found
    return found if bias is None else found.add_(bias)


@_operator.register_fake
def _(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


class _Pruning(prune.Identity):
    """The hook of a pruned SparseLinear, whose weight applies the mask when it is needed."""

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        if not isinstance(module, SparseLinear):
            super().__call__(module, inputs)

    def remove(self, module: nn.Module) -> None:
        super().__call__(module, ())  # `remove` deletes the attribute
        super().remove(module)


def accelerate(
    model: nn.Module, example: Any = None, *, density: float | None = None, keep_dense: bool = True
) -> nn.Module:
    """Return a copy of a pruned model whose sparse linear layers are computed by gbdnn.

    Each ``nn.Linear`` that gains becomes a `SparseLinear`, a subclass. In an ``nn.Sequential``,
    each chain of Linear, BatchNorm1d, ReLU, ReLU6, ``Hardtanh(0, c)``, Dropout and Identity that
    gains is computed in one call; the container becomes a `SparseSequential`.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode (``model.eval()``). It is not modified.
    example : tensor, tuple of arguments or dict of keyword arguments, optional
        Arguments of the model. If given, each replacement is timed against the original on the
        tensor that reaches it, and reverted if it is slower. Then the outputs are compared.
    density : float, optional
        Replace layers whose fraction of nonzero weights is at most this. Default: a cost model
        decides, assuming 32 inputs per call.
    keep_dense : bool, default True
        Keep the dense weights. Without them a `SparseLinear` needs less memory, but raises where
        the weights are required: ``state_dict``, gradients, tracing, export, autocast.

    Returns
    -------
    torch.nn.Module
        A copy whose parameters require no gradient. ``copy.gbdnn_report`` is a `Report` with a line
        for each linear layer; print it.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        `model` is not a module or is in training mode; `example` has another type; `density` is not
        between 0 and 1; the outputs for `example` differ by more than rounding.

    Notes
    -----
    Weights that are replaced or changed in place are compiled again by the next call; after
    changes of the values of ``weight.data``, call `accelerate` again. Sparse tensors become dense.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.Tanh()).eval()
    >>> _ = model[0].weight.data[:, 25:].zero_()
    >>> fast = gbdnn.torch.accelerate(model)
    >>> print(fast.gbdnn_report)
    module  neurons  density  computed by
    0       512-512  4.9 %    gbdnn
    >>> x = torch.rand(3, 512)
    >>> torch.allclose(fast(x), model(x), atol=1e-5)
    True
    """
    require_kind(model, nn.Module, "model must be a torch.nn.Module")
    if names := [name for name, part in model.named_modules() if part.training]:
        raise ArgumentError(f"{names[-1] or 'model'} is in training mode; call model.eval() first")
    if not isinstance(example, torch.Tensor | tuple | Mapping | None):
        raise ArgumentTypeError(
            "example must be a tensor, a tuple of arguments or a dict of keyword arguments, not"
            f" {type(example).__qualname__}"
        )
    if density is not None and not 0 <= as_number(density, "density") <= 1:
        raise ArgumentError(f"density must be between 0 and 1, not {density}")
    with torch.inference_mode(False), torch.no_grad(), torch.autocast("cpu", enabled=False):
        made = _copied(model)
        report = Report(_Replacing(made, density, example).rows.values())
        object.__setattr__(made, "gbdnn_report", report)
        for part in reversed([*made.modules()]):
            kinds = {type(x) for x in part.children()}
            if SparseLinear in kinds and hasattr(part, "activation_relu_or_gelu"):
                part.activation_relu_or_gelu = 0  # TransformerEncoderLayer reads no weights then
            if isinstance(part, SparseLinear) and not keep_dense:
                for key in _masks(part):
                    prune.remove(part, key)
                part.sparse_weight = network_of([part])[0].W
                part.weight = nn.Parameter(part.weight.to("meta"), requires_grad=False)
            for chain in vars(part).get("_chains", {}).values():
                chain.note()
        outputs = [[], []] if example is None else [_outputs(x, example) for x in (model, made)]
        for x, y in zip(*outputs, strict=True):
            if not _is_close(x, y):
                most = f"{(x - y).abs().max():.2g}; omit the example if the model is random"
                raise ArgumentError(f"the accelerated model's output differs by up to {most}")
    return made


def _outputs(model: nn.Module, example: Any) -> list[torch.Tensor]:
    """Return the floating-point tensors that a model returns."""
    args = example if isinstance(example, tuple) else (example,)
    found = model(**example) if isinstance(example, Mapping) else model(*args)
    return [x for x in tree_leaves(found) if type(x) is torch.Tensor and x.is_floating_point()]


class _Replacing:
    """Replaces the modules of one model."""

    def __init__(self, model: nn.Module, most: float | None, example: Any) -> None:
        self._most, self._names = most, {part: name for name, part in model.named_modules()}
        self._entries, self.rows = dict[Any, int](), dict[Any, Replacement]()
        self._inputs = dict[nn.Module, Any]()
        for part, name in self._names.items():
            if isinstance(part, nn.Linear):
                n, m, why = part.in_features, part.out_features, _fault(part)
                if not why:
                    self._entries[part] = int(torch.count_nonzero(part.weight))
                density = self._entries.get(part, math.nan) / max(n * m, 1)
                self.rows[part] = Replacement(name, f"{n}-{m}", density, False, why)
        if example is not None:
            keep = [x.register_forward_pre_hook(self._inputs.__setitem__) for x in self._entries]
            _outputs(model, example)
            for hook in keep:
                hook.remove()
        for part in self._names:
            if type(part) in (nn.Sequential, SparseSequential) and "forward" not in vars(part):
                self._fuse(part)
        for part in [x for x in self._entries if not self.rows[x].is_replaced]:
            self._try(_Chain([part]), part, 0)

    def _fuse(self, module: Any) -> None:
        """Let a Sequential compute chains in one call each, if that gains."""
        parts, at, known = [*module._modules.values()], 0, self._entries
        while at < len(parts):
            spans = [parts[at:end] for end in range(len(parts), at + 1, -1) if parts[at] in known]
            chains = [x for x in spans if all(y in known or type(y) in FOLLOWING for y in x)]
            chain = next((x for x in map(_Chain, chains) if not x.fault), None)
            at += len(chain.parts) if chain and self._try(chain, module, at) else 1

    def _try(self, chain: _Chain, module: Any, at: int) -> bool:
        """Let gbdnn compute a chain if that gains and gives the same result."""
        sizes = [(self._entries[x], x.in_features, x.out_features) for x in chain.linears]
        most = sum(n * m for _, n, m in sizes) * (1.0 if self._most is None else self._most)
        why, times = "too dense" if sum(e for e, _, _ in sizes) > most else "", ""
        if self._most is None and not costs.accelerating_pays(sizes):
            why = "dense products take less time"
        why = why or chain.fault or _differs(chain)
        x = [*self._inputs.get(chain.parts[0], ()), None][0]
        if not why and _is_ordinary(x) and chain.result(x) is not None:
            calls = partial(chain.result, x), partial(chain.dense, x)
            rounds = [[timeit(each, number=1) for each in calls] for _ in range(15)]
            ours, theirs = (1e6 * min(each) for each in zip(*rounds, strict=True))
            times = f"{ours:.0f} us, PyTorch {theirs:.0f} us"
            why = times if ours > theirs else ""
        if not why:
            for part in chain.linears:
                part._chains = {}
                for name, hook in _masks(part).items():
                    hook.__class__ = _Pruning
                    vars(part).pop(name, None)
            if len(chain.parts) > 1:
                first, last = (self._names[chain.parts[k]] for k in (0, -1))
                times = f"fused: {first} to {last}{times and ', '}{times}"
                module.__class__ = SparseSequential
                vars(module).setdefault("_stops", {})[at] = at + len(chain.parts)
            vars(module).setdefault("_chains", {})[at] = chain
        if not why or len(chain.parts) == 1:  # else the layers are tried one by one
            for part in chain.linears:
                part.__class__ = nn.Linear if why else SparseLinear
                self.rows[part] = self.rows[part]._replace(is_replaced=not why, why=why or times)
        return not why


def _differs(chain: _Chain) -> str:
    """Compare a chain with PyTorch, which prepares it; return what is wrong or an empty string."""
    generator, n = torch.Generator().manual_seed(0), chain.shape[0]
    for shape in ((3, n), (2, 3, n)):
        x = torch.randn(shape, generator=generator, dtype=chain.dtype)
        if (found := chain.result(x)) is not None and not _is_close(chain.dense(x), found):
            return "the results differ by more than rounding"
    return ""


def _is_close(expected: torch.Tensor, found: torch.Tensor) -> bool:
    largest = expected[expected.isfinite()].abs().amax() if expected.isfinite().any() else 0.0
    within = 1000 * torch.finfo(expected.dtype).eps * float(largest)
    return torch.allclose(found, expected, rtol=0, atol=within, equal_nan=True)


def _fault(linear: Any) -> str:
    """Return why gbdnn cannot compute a Linear, or an empty string."""
    if type(linear) not in _KINDS:
        return f"its class {type(linear).__name__} is not torch.nn.Linear"
    known = {*linear._parameters, *_masks(linear)}
    if "forward" in vars(linear) or not known >= {"weight", "bias"}:
        return "other code computes its output or its weight"
    if (x := linear.weight).device.type != "cpu" or x.dtype not in _DTYPES:
        return f"{x.dtype} on {x.device}; use float32 or float64 on the CPU"
    return ""


def _copied(model: nn.Module) -> Any:
    """Return a copy that requires no gradient, with masks applied and without sparse tensors."""
    memo: dict[int, Any] = {}
    for part in model.modules():
        for x in (*part.parameters(recurse=False), *vars(part).values()):
            if isinstance(x, torch.Tensor) and not x.is_leaf:  # a pruned weight
                memo[id(x)] = x.detach()
            elif isinstance(x, nn.Parameter) and x.layout != torch.strided:  # cannot be copied
                memo[id(x)] = nn.Parameter(x.detach().to_dense(), requires_grad=False)
    made = copy.deepcopy(model, memo).requires_grad_(False)
    for part in made.modules():
        vars(part).pop("_chains", vars(part).pop("_stops", None))
        for hook in _masks(part).values():
            hook(part, ())
    return made


def _version(x: Any) -> tuple[Any, Any]:
    """Return a tensor's number of changes in place and its address, or None for both."""
    if not isinstance(x, torch.Tensor) or x.is_inference() or x.layout != torch.strided:
        return None, None
    return x._version, x.data_ptr()


def _masks(module: nn.Module) -> dict[str, Any]:
    """Return the pruning hooks by the name of their parameter."""
    hooks = module._forward_pre_hooks.values()
    return {x._tensor_name: x for x in hooks if isinstance(x, prune.BasePruningMethod)}
