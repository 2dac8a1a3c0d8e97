"""Acceleration of pruned PyTorch models: gbdnn computes their sparse linear layers.

Sparse linear layers, and chains of them with ReLUs, are replaced by modules that pass the memory of
a tensor to a compiled network (`gbdnn.compile`). PyTorch computes all other modules.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from contextlib import suppress
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.arrays.checks import as_number
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, require_kind
from gbdnn.io.frameworks.chain import Chain
from gbdnn.io.frameworks.torch_tensors import import_torch
from gbdnn.kernels import costs
from gbdnn.serving import CompiledNetwork

import_torch()

import torch  # noqa: E402 -- a MissingPackageError if it is not installed
from torch import nn  # noqa: E402

from gbdnn.io.frameworks.torch_trace import is_elementwise, is_linear, trace  # noqa: E402

if TYPE_CHECKING:
    from gbdnn.model.network import Network

__all__ = ["Replacement", "Report", "SparseLinear", "accelerate"]


def __dir__() -> list[str]:
    """List the public names only."""
    return sorted(__all__)


_ROUNDS = 15  # interleaved calls of both modules
_DTYPES = (torch.float32, torch.float64)


class Replacement(NamedTuple):
    """The decision of `accelerate` about a linear layer or a chain of them."""

    name: str
    """Name of the module in the model."""

    shape: str
    """Numbers of neurons, such as ``"768-3072"``."""

    density: float
    """Fraction of nonzero weights; NaN if not determined."""

    is_replaced: bool
    """Whether gbdnn computes the module."""

    why: str
    """Why it was not replaced, or both times if they were measured."""


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
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(lines) if len(self) else "no linear layer"


class SparseLinear(nn.Module):
    """A linear layer, or a chain of them with ReLUs, computed by gbdnn on the CPU.

    Maps tensors of shape ``(..., features)``. Has no parameters and no gradient, and uses
    ``torch.get_num_threads()`` threads. It can be pickled and copied.

    Parameters
    ----------
    network : Network
        In memory.

    Attributes
    ----------
    network : Network

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> linear = torch.nn.Linear(4, 2)
    >>> _ = linear.weight.data.copy_(torch.eye(2, 4)), linear.bias.data.zero_()
    >>> sparse = gbdnn.torch.SparseLinear.from_linear(linear)
    >>> sparse
    SparseLinear(4 to 2, 2 edges, float32)
    >>> with torch.no_grad():
    ...     sparse(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor([1., 2.])
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network, self._shape = network, network.shape
        self._dtype = torch.float64 if network.dtype == "f8" else torch.float32
        self._compiled: dict[int, CompiledNetwork] = {}
        self._names: tuple[str, ...] | None = ("",)
        self.eval()

    @classmethod
    def from_linear(cls, linear: nn.Module) -> SparseLinear:
        """Return a module equivalent to a `torch.nn.Linear`.

        Parameters
        ----------
        linear : torch.nn.Linear
            On the CPU, float32 or float64. Masks of ``torch.nn.utils.prune`` are applied, and
            weights may be sparse tensors. The weights are copied.

        Raises
        ------
        ArgumentTypeError, ArgumentError
            `linear` is not a Linear, has hooks, or has an unsupported dtype or device.
        """
        require_kind(linear, nn.Module, "linear must be a torch.nn.Linear")
        if not is_linear(linear):
            raise ArgumentTypeError(f"linear must be a torch.nn.Linear, not {_kind(linear)}")
        if fault := _unsuited(linear):
            raise ArgumentError(f"linear: {fault}")
        return cls(trace(nn.Sequential(linear), Chain(None)).network())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations of the last layer; the last dimension contains the features."""
        if self.training:
            raise ArgumentError(
                "accelerated modules do not support training mode; call model.eval()"
            )
        if x.device.type != "cpu" or x.dtype != self._dtype:
            raise ArgumentError(
                f"this accelerated module supports {self._dtype} tensors on the CPU, not {x.dtype}"
                f" on {x.device}; convert the tensor, or accelerate a model of its dtype"
            )
        if x.requires_grad and torch.is_grad_enabled():
            raise ArgumentError(
                "accelerated modules do not support gradients; call the model under"
                " torch.no_grad(), or train the original model"
            )
        nrows, ncols = self._shape
        if not x.ndim or x.shape[-1] != nrows:
            raise ShapeError(f"the tensor must have shape (..., {nrows}), not {tuple(x.shape)}")
        threads = torch.get_num_threads()
        if (run := self._compiled.get(threads)) is None:
            run = self._compiled[threads] = CompiledNetwork(self.network, threads)
        rows = x.detach() if x.requires_grad else x
        if x.ndim == 2:
            return torch.from_numpy(run(rows.numpy()))
        return torch.from_numpy(run(rows.reshape(-1, nrows).numpy())).reshape(*x.shape[:-1], ncols)

    def extra_repr(self) -> str:
        """Return the text in the parentheses of the representation."""
        nrows, ncols = self.network.shape
        dtype = str(self._dtype).removeprefix("torch.")
        return f"{nrows} to {ncols}, {self.network.edges} edges, {dtype}"

    @property
    def weight(self) -> torch.Tensor:
        """The weights of a single layer as a new dense tensor, outputs x inputs."""
        return self._dense(0)["weight"]

    @property
    def bias(self) -> torch.Tensor | None:
        """The bias of a single layer."""
        return self._dense(0)["bias"]

    def _dense(self, k: int) -> dict[str, torch.Tensor]:
        layer = self.network[k]
        weight = torch.from_numpy(layer.W.to_dense(fill_value=0, dtype=layer.W.dtype))
        bias = torch.empty(layer.ncols, dtype=self._dtype)
        bias[:] = torch.as_tensor(np.array(layer.bias))
        return {"weight": weight.T.contiguous(), "bias": bias}

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Add dense weights under the names of the original."""
        if self._names is None:
            raise ArgumentError(
                f"{prefix.removesuffix('.')}: has no state_dict because a BatchNorm was merged into"
                " its weights; save the original's state_dict, or pickle the module"
            )
        whole = prefix.removesuffix(prefix.removesuffix(".").rpartition(".")[2] + ".")
        for k, name in enumerate(self._names):
            for key, tensor in self._dense(k).items():
                destination[f"{whole}{name}.{key}" if name else f"{prefix}{key}"] = tensor

    def _load_from_state_dict(self, state: Any, prefix: str, *arguments: Any) -> None:
        arguments[-1].append(  # errors
            f"{prefix.removesuffix('.')}: cannot load weights into an accelerated module; load them"
            " into the original model and accelerate it again"
        )


class _Chained(nn.Module):
    """An `nn.Sequential` with merged modules; not indexable, since positions have changed."""

    def __init__(self, parts: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._modules.update(parts)
        self.eval()

    def forward(self, input: Any) -> Any:  # noqa: A002 -- as `nn.Sequential` has it
        for _, part in _children(self):
            input = part(input)  # noqa: A001
        return input


def accelerate(model: nn.Module, example: Any = None, *, density: float | None = None) -> nn.Module:
    """Return a copy of a pruned model whose sparse linear layers are computed by gbdnn.

    Replaces each ``nn.Linear``, and in an ``nn.Sequential`` each chain of Linear, BatchNorm1d,
    ReLU, ReLU6, ``Hardtanh(0, c)``, Dropout and Identity, by a `SparseLinear` if that is faster.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode (``model.eval()``). It is not modified.
    example : tensor, tuple of arguments or dict of keyword arguments, optional
        Arguments of the model. If given, each replacement is timed against the original on the
        tensor that reaches it, and reverted if it is slower.
    density : float, optional
        Replace layers whose fraction of nonzero weights is at most this. Default: a cost model
        decides, assuming 32 inputs per call.

    Returns
    -------
    torch.nn.Module
        A copy, for inference on the CPU. ``copy.gbdnn_report`` is a `Report`; print it. Its
        ``state_dict`` has the original's keys and dense weights.

    Raises
    ------
    ArgumentTypeError, ArgumentError
        `model` is not a module or is in training mode; `density` is not between 0 and 1.

    Notes
    -----
    Layers are not replaced if they are dense, have hooks, are not float32 or float64, are not on
    the CPU, or belong to an ``nn.MultiheadAttention``; the report states the reason. Unlike in
    PyTorch, activations that are not finite raise an error. A module that is used in several places
    is replaced in all of them.

    Examples
    --------
    >>> import torch, gbdnn.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU()).eval()
    >>> _ = model[0].weight.data[:, 25:].zero_()
    >>> fast = gbdnn.torch.accelerate(model)
    >>> print(fast.gbdnn_report)
    module  neurons  density  computed by
    0       512-512  4.9 %    gbdnn
    >>> x = torch.rand(3, 512)
    >>> with torch.no_grad():
    ...     torch.allclose(fast(x), model(x), atol=1e-5)
    True
    """
    require_kind(model, nn.Module, "model must be a torch.nn.Module")
    if any(part.training for part in model.modules()):
        raise ArgumentError("model is in training mode; call model.eval() first")
    if density is not None and not 0 <= as_number(density, "density") <= 1:
        raise ArgumentError(f"density must be between 0 and 1, not {density}")
    work = _Replacing(density)
    made = work.replaced(copy.deepcopy(model, _uncopied(model)), "")
    if example is not None:
        made = work.timed(made, example)
    object.__setattr__(made, "gbdnn_report", work.report)
    return made


class _Replacing:
    """Replaces the modules of one model."""

    def __init__(self, density: float | None) -> None:
        self._most = density
        self.report = Report()
        self._done: dict[int, nn.Module] = {}
        self._originals: dict[
            nn.Module, tuple[int, dict[str, nn.Module]]
        ] = {}  # index in the report

    def replaced(self, module: nn.Module, name: str) -> nn.Module:
        """Return the replacement of a module: the module, possibly modified, or a new one."""
        if id(module) in self._done:
            return self._done[id(module)]
        found = module
        if is_linear(module):
            found = self._linear(module, name)
        elif isinstance(module, nn.MultiheadAttention):
            pass  # reads the weights of its children
        elif type(module).forward is nn.Sequential.forward and not _hooks(module):
            found = self._sequence(module, name)
        else:
            for key, part in _children(module):
                setattr(module, key, self.replaced(part, _join(name, key)))
            if isinstance(module, nn.TransformerEncoderLayer) and any(
                isinstance(part, SparseLinear) for part in module.children()
            ):
                module.activation_relu_or_gelu = 0  # disables the path that reads weights
        self._done[id(module)] = found
        return found

    def _sequence(self, module: nn.Module, name: str) -> nn.Module:
        """Return a Sequential with its chains replaced."""
        given, at = _children(module), 0
        parts: dict[str, nn.Module] = {}
        while at < len(given):
            key, part = given[at]
            stop = at + 1
            if is_linear(part):
                while stop < len(given) and _follows(given[stop][1]):
                    stop += 1
                parts[key], stop = self._longest_chain(given[at:stop], at, name)
            else:
                parts[key] = self.replaced(part, _join(name, key))
            at = stop
        if len(parts) < len(given):
            return _Chained(parts)
        for key, part in parts.items():
            setattr(module, key, part)
        return module

    def _longest_chain(
        self, given: list[tuple[str, nn.Module]], at: int, name: str
    ) -> tuple[nn.Module, int]:
        """Return the module for the longest chain that begins here, and the chain's end."""
        for count in range(len(given), 1, -1):
            parts = [part for _, part in given[:count]]
            with suppress(ArgumentError):
                found = self._chain(parts, _join(name, given[0][0]), [key for key, _ in given])
                if isinstance(found, SparseLinear):
                    return found, at + count
                break
        return self.replaced(given[0][1], _join(name, given[0][0])), at + 1

    def _chain(self, parts: list[nn.Module], name: str, keys: list[str]) -> nn.Module:
        """Return the module for a chain, or its first module if the chain is not replaced."""
        linears = [part for part in parts if is_linear(part)]
        sizes = [(_entries(x), x.in_features, x.out_features) for x in linears]
        entries, dense = (sum(x) for x in zip(*((e, n * m) for e, n, m in sizes), strict=True))
        made, why = parts[0], ""
        if self._most is not None and entries > self._most * dense:
            why = "too dense"
        elif self._most is None and not costs.accelerating_pays(sizes):
            why = "dense products take less time"
        else:
            made = SparseLinear(trace(nn.Sequential(*parts), Chain(None)).network())
            norms = any(isinstance(part, nn.BatchNorm1d) for part in parts)
            given = dict(zip(keys, parts, strict=False))
            made._names = None if norms else tuple(key for key, x in given.items() if is_linear(x))
            self._originals[made] = len(self.report), given
        if why and len(linears) > 1:  # consider each layer separately
            return made
        neurons = "-".join(map(str, (sizes[0][1], *(m for _, _, m in sizes))))
        self._note(name, neurons, entries / max(dense, 1), why)
        return made

    def _linear(self, module: nn.Module, name: str) -> nn.Module:
        """Return the module for a Linear, or the Linear if it is not replaced."""
        why = _unsuited(module)
        try:
            return self._chain([module], name, [""]) if not why else self._left(module, name, why)
        except ArgumentError as err:
            return self._left(module, name, str(err).partition(";")[0])

    def _left(self, module: Any, name: str, why: str) -> nn.Module:
        self._note(name, f"{module.in_features}-{module.out_features}", math.nan, why)
        return module

    def _note(self, name: str, shape: str, density: float, why: str) -> None:
        self.report.append(Replacement(name, shape, density, not why, why))

    def timed(self, model: nn.Module, example: Any) -> nn.Module:
        """Revert replacements that are slower than the original on the tensors of an example."""
        inputs: dict[nn.Module, Any] = {}

        def keep(part: nn.Module, given: tuple[torch.Tensor]) -> None:
            inputs.setdefault(part, given[0])

        hooks = [part.register_forward_pre_hook(keep) for part in self._originals]
        try:
            with torch.inference_mode():
                if isinstance(example, Mapping):
                    model(**example)
                else:
                    model(*(example if isinstance(example, tuple) else (example,)))
        finally:
            for hook in hooks:
                hook.remove()
        back: dict[nn.Module, dict[str, nn.Module]] = {}
        for part, (at, original) in self._originals.items():
            why, is_slower = "not reached by the example", False
            if part in inputs:
                ours, theirs = _seconds(part, _Chained(original), inputs[part])
                is_slower = ours > theirs
                why = f"{ours * 1e6:.0f} us, PyTorch {theirs * 1e6:.0f} us"
            if is_slower:
                back[part] = original
            self.report[at] = self.report[at]._replace(is_replaced=not is_slower, why=why)
        if model in back:  # a single Linear
            return next(iter(back[model].values()))
        for module in list(model.modules()):
            _put_back(module, back)
        return model


def _put_back(module: nn.Module, back: Mapping[nn.Module, Mapping[str, nn.Module]]) -> None:
    """Restore originals in a module, those of a chain under their own names."""
    children = list(module._modules.items())
    module._modules.clear()
    for key, part in children:
        originals = back.get(part, {}) if part is not None else {}
        if len(originals) > 1:
            module._modules.update(originals)
        else:
            module._modules[key] = next(iter(originals.values()), part)


def _seconds(part: nn.Module, original: nn.Module, x: torch.Tensor) -> tuple[float, float]:
    """Return the median seconds of interleaved calls of both modules."""
    seconds: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for k in range(_ROUNDS + 1):
            for each, to in zip((part, original), seconds, strict=True):
                began = perf_counter()
                each(x)
                if k:  # the first call prepares
                    to.append(perf_counter() - began)
    return median(seconds[0]), median(seconds[1])


def _uncopied(model: nn.Module) -> dict[int, Any]:
    """Return deepcopy's memo for tensors that PyTorch cannot copy: substitutes by id."""
    found: dict[int, Any] = {}
    for part in model.modules():
        for x in (*part.parameters(recurse=False), *vars(part).values()):
            if isinstance(x, torch.Tensor):
                if not x.is_leaf:  # a pruned weight
                    found[id(x)] = x.detach()
                elif x.layout != torch.strided:
                    found[id(x)] = x
    return found


def _follows(module: nn.Module) -> bool:
    """Whether a module may continue a chain."""
    return (is_linear(module) or is_elementwise(module)) and not _unsuited(module)


def _entries(linear: Any) -> int:
    """Return the approximate number of nonzero weights."""
    if hasattr(linear, "weight_mask"):
        return int(torch.count_nonzero(linear.weight_mask * linear.weight_orig))
    weight = linear.weight.detach()
    return int(torch.count_nonzero(weight if weight.layout == torch.strided else weight.values()))


def _unsuited(module: nn.Module) -> str:
    """Return why gbdnn cannot compute a module, or an empty string."""
    if _hooks(module):
        return "it has hooks"
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.device.type != "cpu":
            return f"it is on {tensor.device}; call model.cpu()"
        if tensor.dtype.is_floating_point and tensor.dtype not in _DTYPES:
            return f"it is {tensor.dtype}; call model.float()"
    return ""


def _children(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return the children by name, with repetitions, unlike ``named_children``."""
    return [(key, part) for key, part in module._modules.items() if part is not None]


def _hooks(module: nn.Module) -> bool:
    pruning = nn.utils.prune.BasePruningMethod
    given = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return any(not isinstance(hook, pruning) for hook in given) or "forward" in vars(module)


def _join(*names: str) -> str:
    return ".".join(filter(None, names))


def _kind(x: object) -> str:
    return type(x).__qualname__
