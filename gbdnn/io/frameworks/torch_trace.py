"""The layers of a PyTorch module as ``torch.fx`` traces it, or an error that names the node.

This module imports PyTorch; `from_torch` imports it when it is given a PyTorch module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.fx
from torch.nn import functional
from torch.nn.utils import prune

from gbdnn.errors import ArgumentError
from gbdnn.io.frameworks.chain import no_meaning
from gbdnn.io.frameworks.torch_tensors import add_linear

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.io.frameworks.chain import Chain

# The parameters after the input, in order, and their defaults.
_CLAMPS: dict[str, dict[str, Any]] = {
    "relu": {"inplace": False, "min": 0},
    "relu6": {"inplace": False, "min": 0, "max": 6},
    "hardtanh": {"min_val": -1, "max_val": 1},
    "clamp": {"min": None, "max": None},
    "clip": {"min": None, "max": None},
    "clamp_min": {"min": None},
    "clamp_max": {"max": None},
}
_FLATTENED = {"start_dim": 0, "end_dim": -1}
_FUNCTIONS = {
    getattr(room, name + end): name
    for name in (*_CLAMPS, "dropout", "alpha_dropout", "flatten", "reshape")
    for room in (torch, functional)
    for end in ("", "_")
    if hasattr(room, name + end)
}
_METHODS = {
    name + end: name
    for name in (*_CLAMPS, "flatten", "reshape", "view")
    for end in ("", "_")
    if hasattr(torch.Tensor, name + end)
}


class _Tracer(torch.fx.Tracer):
    def is_leaf_module(self, m: torch.nn.Module, module_qualified_name: str) -> bool:
        return type(m).forward in _MODULES or super().is_leaf_module(m, module_qualified_name)


def trace(module: torch.nn.Module, chain: Chain) -> Chain:
    """Add the layers of `module`, which is not modified, to `chain`."""
    for name, part in module.named_modules():
        _require_visible(name, part)
    if _Tracer().is_leaf_module(module, ""):
        module = torch.nn.Sequential(module)
    try:
        graph = _Tracer().trace(module)
    except Exception as err:
        raise ArgumentError(
            f"{type(module).__qualname__}: torch.fx cannot trace its forward: {err}"
        ) from err
    nodes = list(graph.nodes)
    before = next((node for node in nodes if node.op == "placeholder"), None)
    if before is None:
        raise ArgumentError(f"{type(module).__qualname__}: its forward takes no input")
    for node in nodes:
        if node is before or (node.op == "placeholder" and not node.users):
            continue
        name = _name(node, module)
        if node.op == "get_attr":
            raise no_meaning(f"{node.target!r}", "it is used outside the modules known here")
        if node.all_input_nodes != [before]:
            raise no_meaning(name, "it takes something other than the result before it alone")
        if len(before.users) > 1:
            raise no_meaning(_name(before, module), "its result is used more than once: a skip")
        if node.op == "call_module":
            part = module.get_submodule(str(node.target))
            if type(part).forward not in _MODULES:
                raise no_meaning(name)
            _MODULES[type(part).forward](chain, part, name)
        elif node.op == "call_function" and node.target in _FUNCTIONS:
            _add_function(chain, _FUNCTIONS[node.target], node, name)
        elif node.op == "call_method" and node.target in _METHODS:
            _add_function(chain, _METHODS[str(node.target)], node, name)
        elif node.op != "output" or node.args != (before,):
            raise no_meaning(name)
        before = node
    return chain


def _require_visible(name: str, module: torch.nn.Module) -> None:
    """Raise ArgumentError for hooks and the like, whose effect a trace does not show."""
    hooks = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    hooks = [hook for hook in hooks if not isinstance(hook, prune.BasePruningMethod)]
    if hooks or "forward" in vars(module):
        kind = "forward hooks" if hooks else "a forward of its own instance"
        raise ArgumentError(
            f"{name!r} ({type(module).__qualname__}): has {kind}, whose effect cannot be seen"
        )


def _name(node: torch.fx.Node, module: torch.nn.Module) -> str:
    if node.op == "call_module":
        kind = type(module.get_submodule(str(node.target))).__qualname__
        return f"{node.target!r} ({kind})"
    return f"node {node.name!r}"


def _add_linear(chain: Chain, module: Any, name: str) -> None:
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers())}
    for key in ("weight", "bias"):  # maybe computed at each access: torch.nn.utils.parametrize
        if f"{key}_orig" not in tensors:
            tensors[key] = getattr(module, key)
    add_linear(chain, tensors, name)


def _add_function(chain: Chain, function: str, node: torch.fx.Node, name: str) -> None:
    options = {key: value for key, value in node.kwargs.items() if key != "input"}
    args: Any = node.args if "input" in node.kwargs else node.args[1:]
    if function in _CLAMPS:
        bounds = _CLAMPS[function] | dict(zip(_CLAMPS[function], args, strict=False)) | options
        low, high = (bounds.get(x, bounds.get(f"{x}_val")) for x in ("min", "max"))
        if not all(isinstance(x, int | float | None) for x in (low, high)):
            raise no_meaning(name, "a bound is no number")
        chain.clamp(low, high, name)
    elif function == "flatten":
        _require_rows(name, **(_FLATTENED | dict(zip(_FLATTENED, args, strict=False)) | options))
    elif function in ("view", "reshape"):
        shape = args[0] if len(args) == 1 else args or options.get("shape")
        if not isinstance(shape, tuple | list) or len(shape) != 2 or shape[0] != -1:
            raise no_meaning(name, f"a shape of {shape} and not (-1, n), a row per input")


def _require_rows(name: str, start_dim: int, end_dim: int) -> None:
    if start_dim != 1 or end_dim not in (1, -1):
        raise no_meaning(
            name, f"it flattens dimensions {start_dim} to {end_dim}, not 1 to the last"
        )


# Modules are known by their forward, not by their class: a subclass may override it.
_MODULES: dict[Any, Callable[[Chain, Any, str], None]] = {
    torch.nn.Linear.forward: _add_linear,
    torch.nn.ReLU.forward: lambda chain, _, name: chain.clamp(0, None, name),
    # of ReLU6 too
    torch.nn.Hardtanh.forward: lambda chain, x, name: chain.clamp(x.min_val, x.max_val, name),
    torch.nn.Flatten.forward: lambda _, x, name: _require_rows(name, x.start_dim, x.end_dim),
    torch.nn.Identity.forward: lambda *_: None,
    torch.nn.Dropout.forward: lambda *_: None,
    torch.nn.AlphaDropout.forward: lambda *_: None,
}
