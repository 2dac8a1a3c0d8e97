"""Decide which modules of a model gbdnn computes, and change their class."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from timeit import timeit
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn
from torch.ao.nn.quantized import Linear as Quantized
from torch.ao.nn.quantized.modules.linear import LinearPackedParams
from torch.nn.utils import prune

from gbdnn.arrays.checks import as_number
from gbdnn.errors import ArgumentError, ArgumentTypeError, require_kind
from gbdnn.io.frameworks.torch_trace import FOLLOWING, GUARDS
from gbdnn.kernels import costs
from gbdnn.torch.accelerated import (
    KINDS,
    AcceleratedLinear,
    AcceleratedSequential,
    Chain,
    Pruning,
    is_ordinary,
    masks_of,
)
from gbdnn.torch.private import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Replacement", "Report", "accelerate", "restore"]

_DTYPES = torch.float32, torch.float64
_LINEARS = nn.Linear, Quantized
_PACKED = LinearPackedParams  # of quantized modules, which stay in training mode


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


def accelerate(
    model: nn.Module, example: Any = None, *, density: float | None = None, keep_dense: bool = True
) -> nn.Module:
    """Return a copy of a pruned model whose sparse linear layers are computed by gbdnn.

    The class of each ``nn.Linear`` that gains becomes a subclass, which gbdnn computes. In an
    ``nn.Sequential``, each chain of Linear, BatchNorm1d, ReLU, ReLU6, ``Hardtanh(0, c)``, Dropout
    and Identity that gains is computed in one call. `restore` makes plain modules again.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode (``model.eval()``). It is not modified.
    example : tensor, tuple of arguments or dict of keyword arguments, optional
        Arguments of the model. If given, each replacement is timed against the original on the
        tensor that reaches it, and reverted if it is slower. Then the outputs are compared.
    density : float, optional
        Replace each layer whose fraction of nonzero weights is at most this. Default: a cost model
        decides, assuming 32 inputs per call.
    keep_dense : bool, default True
        Keep the dense weights. Without them a layer needs less memory, but raises where PyTorch
        has to compute: gradients, tracing, export, autocast. ``state_dict`` makes them dense.

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
    Weights that are replaced, changed in place or by an optimizer are compiled again by the next
    call without gradients. Changes of ``.data`` and of NumPy views are noticed if they change most
    of a weight or bias; after others, call `accelerate` again. Sparse tensors become dense.

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
    if isinstance(model, torch.jit.ScriptModule) or GUARDS in model._modules:
        what = "TorchScript or an exported program"
        raise ArgumentError(f"model is {what}; pass the module that it was made from")
    parts = [x for x in model.named_modules() if not isinstance(x[1], _PACKED)]
    if names := [name for name, part in parts if part.training]:
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
            if AcceleratedLinear in kinds and hasattr(part, "activation_relu_or_gelu"):
                vars(part).setdefault("_gbdnn_activation", part.activation_relu_or_gelu)
                part.activation_relu_or_gelu = 0  # TransformerEncoderLayer reads no weights then
            if isinstance(part, AcceleratedLinear) and not keep_dense:
                for key in masks_of(part):
                    prune.remove(part, key)
                part.drop_dense()
            for chain in vars(part).get("_chains", {}).values():
                chain.note()
        outputs = [[], []] if example is None else [_outputs(x, example) for x in (model, made)]
        for x, y in zip(*outputs, strict=True):
            if not _is_close(x, y):
                most = f"{(x - y).abs().max():.2g}; omit the example if the model is random"
                raise ArgumentError(f"the accelerated model's output differs by up to {most}")
    return made


def restore(model: nn.Module) -> nn.Module:
    """Return a copy of an accelerated model that consists of plain PyTorch modules.

    Parameters
    ----------
    model : torch.nn.Module
        A result of `accelerate`, or a module that contains one. It is not modified.

    Returns
    -------
    torch.nn.Module
        With the model's weights, all of them dense.

    Raises
    ------
    ArgumentTypeError
        `model` is not a module.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> fast = gbdnn.torch.accelerate(torch.nn.Linear(4, 2).eval(), density=1)
    >>> gbdnn.torch.restore(fast)
    Linear(in_features=4, out_features=2, bias=True)
    """
    require_kind(model, nn.Module, "model must be a torch.nn.Module")
    made = copy.deepcopy(model)
    part: Any
    for part in made.modules():
        held = vars(part)
        for key in ("_chains", "_stops", "gbdnn_report"):
            held.pop(key, None)
        if "_gbdnn_activation" in held:
            part.activation_relu_or_gelu = held.pop("_gbdnn_activation")
        if isinstance(part, AcceleratedSequential):
            part.__class__ = nn.Sequential
        if isinstance(part, AcceleratedLinear):
            if part.sparse_weight is not None and part.weight.is_meta:
                part.weight = nn.Parameter(part.dense_weight(), requires_grad=False)
            held.pop("sparse_weight", None)
            part.__class__ = nn.Linear
            for hook in masks_of(part).values():
                hook.__class__ = prune.Identity
                hook(part, ())
    return made


def _outputs(model: nn.Module, example: Any) -> list[torch.Tensor]:
    """Return the floating-point tensors that a model returns."""
    args = example if isinstance(example, tuple) else (example,)
    found = model(**example) if isinstance(example, Mapping) else model(*args)
    return [x for x in _leaves(found) if type(x) is torch.Tensor and x.is_floating_point()]


def _leaves(found: Any) -> Iterator[Any]:
    """Yield the leaves of nested containers and dataclasses."""
    for x in tree_leaves(found, is_leaf=is_dataclass):
        if is_dataclass(x):
            yield from _leaves([getattr(x, field.name) for field in fields(x)])
        else:
            yield x


class _Replacing:
    """Replaces the modules of one model."""

    def __init__(self, model: nn.Module, most: float | None, example: Any) -> None:
        self._most, self._names = most, {part: name for name, part in model.named_modules()}
        self._entries, self.rows = dict[Any, int](), dict[Any, Replacement]()
        self._inputs = dict[nn.Module, Any]()
        for part, name in self._names.items():
            if isinstance(part, _LINEARS):
                n, m, why = part.in_features, part.out_features, _fault(part)
                count = math.nan if why else int(torch.count_nonzero(part.weight))
                if most is not None and count > most * n * m:
                    part.__class__, why = nn.Linear, "too dense"
                if not why:
                    self._entries[part] = int(count)
                row = Replacement(name, f"{n}-{m}", count / max(n * m, 1), False, why)
                self.rows[part] = row
        if example is not None:
            keep = [x.register_forward_pre_hook(self._inputs.__setitem__) for x in self._entries]
            _outputs(model, example)
            for hook in keep:
                hook.remove()
        for part in self._names:
            if type(part) in (nn.Sequential, AcceleratedSequential) and "forward" not in vars(part):
                self._fuse(part)
        for part in [x for x in self._entries if not self.rows[x].is_replaced]:
            self._try(Chain([part]), part, 0)

    def _fuse(self, module: Any) -> None:
        """Let a Sequential compute chains in one call each, if that gains."""
        parts, at, known = [*module._modules.values()], 0, self._entries
        while at < len(parts):
            spans = [parts[at:end] for end in range(len(parts), at + 1, -1) if parts[at] in known]
            chains = [x for x in spans if all(y in known or type(y) in FOLLOWING for y in x)]
            chain = next((x for x in map(Chain, chains) if not x.fault), None)
            at += len(chain.parts) if chain and self._try(chain, module, at) else 1

    def _try(self, chain: Chain, module: Any, at: int) -> bool:
        """Let gbdnn compute a chain if that gains and gives the same result."""
        sizes = [(self._entries[x], x.in_features, x.out_features) for x in chain.linears]
        why = times = ""
        if self._most is None and not costs.accelerating_pays(sizes):
            why = "dense products take less time"
        why = why or chain.fault or _differs(chain)
        x = [*self._inputs.get(chain.parts[0], ()), None][0]
        if not why and is_ordinary(x) and chain.result(x) is not None:
            calls = partial(chain.result, x), partial(chain.dense, x)
            rounds = [[timeit(each, number=1) for each in calls] for _ in range(15)]
            ours, theirs = (1e6 * min(each) for each in zip(*rounds, strict=True))
            times = f"{ours:.0f} us, PyTorch {theirs:.0f} us"
            why = times if ours > theirs else ""
        if not why:
            for part in chain.linears:
                part._chains = {}
                for name, hook in masks_of(part).items():
                    hook.__class__ = Pruning
                    vars(part).pop(name, None)
            if len(chain.parts) > 1:
                first, last = (self._names[chain.parts[k]] for k in (0, -1))
                times = f"fused: {first} to {last}{times and ', '}{times}"
                module.__class__ = AcceleratedSequential
                vars(module).setdefault("_stops", {})[at] = at + len(chain.parts)
            vars(module).setdefault("_chains", {})[at] = chain
        if not why or len(chain.parts) == 1:  # else the layers are tried one by one
            for part in chain.linears:
                part.__class__ = nn.Linear if why else AcceleratedLinear
                self.rows[part] = self.rows[part]._replace(is_replaced=not why, why=why or times)
        return not why


def _differs(chain: Chain) -> str:
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
    if isinstance(linear, Quantized):
        return "its weights are quantized"
    if type(linear) not in KINDS:
        return f"its class {type(linear).__name__} is not torch.nn.Linear"
    known = {*linear._parameters, *masks_of(linear)}
    if "forward" in vars(linear) or not known >= {"weight", "bias"}:
        return "other code computes its output or its weight"
    if type(linear.weight) not in (torch.Tensor, nn.Parameter):
        return f"its weight is a {type(linear.weight).__name__}"
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
        for hook in masks_of(part).values():
            hook(part, ())
    return made
