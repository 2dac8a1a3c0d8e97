"""Conversion of a PyTorch module, traced by ``torch.fx``, to layers.

This module imports PyTorch; `from_torch` imports it only for PyTorch modules.
"""

from __future__ import annotations

import operator
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.fx
from torch import nn
from torch.nn import functional
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import prune

from gbdnn.errors import ArgumentError
from gbdnn.io.frameworks.chain import Chain, unsupported
from gbdnn.io.frameworks.torch_tensors import add_linear, parameter
from gbdnn.runtime.optional import if_imported
from gbdnn.runtime.signals import from_handler

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
_DROPOUTS = "dropout", "alpha_dropout"
_FLATTENED = {"start_dim": 0, "end_dim": -1}
# Modules are identified by their forward, which a subclass may override.
_FUNCTIONS_ALONE = {
    each.forward
    for each in (nn.ReLU, nn.Hardtanh, nn.Flatten, nn.Identity, nn.Dropout, nn.AlphaDropout)
}
_METHODS = "forward", "propagate", "message", "message_and_aggregate", "aggregate", "update"
_HEADS = {nn.Softmax: "softmax", nn.LogSoftmax: "log_softmax", nn.Sigmoid: "sigmoid"}
_OTHERS = "gbdnn.torch.accelerate replaces the linear layers of such models"
_QUANTIZED = "its weights are quantized; convert the model before quantization"
GUARDS = "_guards_fn"  # checks shapes in an exported program
LINEARS = {nn.Linear.forward}  # gbdnn.torch adds that of its own


class _Tracer(torch.fx.Tracer):
    """Traces modules down to functions, except those that have parameters or are unknown."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if type(m).forward in _FUNCTIONS_ALONE:
            return False
        return is_linear(m) or super().is_leaf_module(m, module_qualified_name)


def trace(module: nn.Module, chain: Chain, *, logits: bool) -> Chain:
    """Add the layers of `module`, which is not modified, to `chain`.

    `logits` as for `from_torch`.
    """
    for name, part in module.named_modules():
        if name != GUARDS:
            require_visible(name, part)
    if _Tracer().is_leaf_module(module, ""):
        module = nn.Sequential(module)
    root = object.__new__(type(module))  # torch.fx adds tensors that the forward makes
    vars(root).update(vars(module))
    module, is_exported = root, GUARDS in module._modules
    try:
        graph: Any = module.graph if is_exported else _Tracer().trace(module)
    except Exception as err:
        if from_handler(err):
            raise
        raise ArgumentError(
            f"{type(module).__qualname__}: torch.fx cannot trace its forward: {err}"
        ) from err
    nodes, constants = list(graph.nodes), dict[torch.fx.Node, Any]()
    before = next((node for node in nodes if node.op == "placeholder"), None)
    if before is None:
        raise ArgumentError(f"{type(module).__qualname__}: its forward takes no input")
    shapes, counts = _shapes(nodes)
    for k, node in enumerate(nodes):
        if node is before or node in shapes or (node.op == "placeholder" and not node.users):
            continue
        name = _name(node, module)
        if _is_constant(node, module, constants):
            continue
        fixed, first = counts | constants.keys(), node.kwargs.get("input", *node.args[:1])
        moving = [each for each in node.all_input_nodes if each not in fixed]
        if moving != [before] or first not in (before, (before,)):  # a tuple: an exported output
            raise unsupported(name, "it reads more than the previous result")
        if len(before.users.keys() - shapes) > 1:
            raise unsupported(
                _name(before, module), "its result is used twice, as in a skip connection"
            )
        part = module.get_submodule(str(node.target)) if node.op == "call_module" else None
        if type(part) in _HEADS or (part is None and _function(node) in _HEADS.values()):
            later = [n.target for n in nodes[k:] if n.op == "call_module"]
            is_last = "linear" not in map(_function, nodes[k:])
            if is_last and not any(is_linear(module.get_submodule(str(x))) for x in later):
                if not logits:
                    raise unsupported(name, "pass logits=True to drop it")
                return chain
        if part is not None:
            if is_linear(part) or type(part) is nn.BatchNorm1d:
                add_module(chain, part, name)
            else:
                is_quantized = ".quantized." in type(part).__module__
                raise unsupported(name, _QUANTIZED if is_quantized else _OTHERS)
        elif node.op != "output":
            _add_function(chain, node, name, counts, constants)
        elif len(node.args) > 1:
            raise unsupported(name)
        before = node
    return chain


@torch.no_grad()
def _is_constant(
    node: torch.fx.Node, module: nn.Module, constants: dict[torch.fx.Node, Any]
) -> bool:
    """Compute a node that does not depend on the input, such as a weight times its mask."""
    inputs, function = {*node.all_input_nodes}, cast("Any", node.target)
    if node.op == "get_attr":
        path, _, key = function.rpartition(".")
        # A copy, since a forward may change it in place.
        constants[node] = parameter(module.get_submodule(path), key).clone()
    elif node.op in ("call_function", "call_method") and inputs and constants.keys() >= inputs:
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), constants.__getitem__)
        if node.op == "call_method":
            function = getattr(type(args[0]), function)
        is_kept = _function(node) in _DROPOUTS
        constants[node] = args[0] if is_kept else function(*args, **kwargs)
    return node in constants


def is_linear(module: nn.Module) -> bool:
    """Whether a module is a Linear, or a subclass with its forward."""
    kind = type(module)
    return kind.forward in LINEARS or kind is if_imported("torch_geometric.nn", "Linear")


def add_module(chain: Chain, module: Any, name: str) -> None:
    """Add a Linear, BatchNorm1d, ReLU, ReLU6 or Hardtanh."""
    if is_linear(module):
        add_linear(chain, {key: parameter(module, key) for key in ("weight", "bias")}, name)
    elif isinstance(module, nn.BatchNorm1d):
        _add_norm(chain, module, name)
    elif isinstance(module, nn.ReLU):
        chain.clamp(0, None, name)
    elif isinstance(module, nn.Hardtanh):
        chain.clamp(module.min_val, module.max_val, name)


def _shapes(nodes: list[torch.fx.Node]) -> tuple[set[torch.fx.Node], set[torch.fx.Node]]:
    """Return the nodes that query a shape, and those that are the number of inputs."""
    shapes: set[torch.fx.Node] = set()
    counts: set[torch.fx.Node] = set()
    for node in nodes:
        args = [*node.args[1:], *node.kwargs.values()]
        if (node.op, node.target, args) == ("call_method", "size", []) or (
            (node.target is getattr and args == ["shape"]) or node.target == GUARDS
        ):
            shapes.add(node)
        elif (node.op, node.target, args) == ("call_method", "size", [0]) or (
            node.target is operator.getitem and node.args[0] in shapes and args == [0]
        ):
            counts.add(node)
    return shapes | counts, counts


def require_visible(name: str, module: nn.Module) -> None:
    """Raise ArgumentError for hooks and instance attributes, which a trace does not include.

    Those of `prune` may be there where `parameter` reads the weights, and those of an exported
    program, which check its input.
    """
    held, is_script = vars(module), isinstance(module, torch.jit.ScriptModule)
    is_read = not is_script and (is_linear(module) or isinstance(module, nn.BatchNorm1d))
    kinds = [x for x in held if x.endswith(("forward_hooks", "forward_pre_hooks"))]  # PyG has more
    hooks = [hook for kind in kinds for hook in held[kind].values()]
    hooks = [x for x in hooks if not (is_read and isinstance(x, prune.BasePruningMethod))]
    own = [x for x in _METHODS if x in held and hasattr(type(module), x)]
    if is_script:
        why = "is TorchScript, which cannot be traced; pass the module that it was made from"
    elif any(isinstance(x, UninitializedParameter) for x in module._parameters.values()):
        why = "has no weights yet; call the model once"
    elif any(not str(getattr(x, "__module__", "")).startswith("torch.export.") for x in hooks):
        why = "has forward hooks, which cannot be traced"
    elif own:
        why = f"has a {own[0]} of its instance, which cannot be traced"
    else:
        return
    raise ArgumentError(f"{name!r} ({type(module).__qualname__}): {why}")


def _name(node: torch.fx.Node, module: nn.Module) -> str:
    """Return the name of a node's PyTorch module, or of the node."""
    within: Any = node.meta.get("nn_module_stack", {})
    where = [str(each[0]) for each in within.values()][-1:]
    path = str(node.target) if node.op == "call_module" else "".join(where)
    part = dict(module.named_modules(remove_duplicate=False)).get(path, module)
    if node.op == "call_module" or type(part).forward in _FUNCTIONS_ALONE:
        return f"module {path!r} ({type(part).__qualname__})"
    return f"node {node.name!r}"


def _add_norm(chain: Chain, module: Any, name: str) -> None:
    """Add ``(x - mean) / sqrt(variance + eps) * weight + bias`` with the running statistics."""
    keys = "weight", "bias", "running_mean", "running_var"
    weight, bias, mean, variance = (parameter(module, key) for key in keys)
    if mean is None or module.training:
        raise unsupported(name, "it has no running mean, or is in training mode; call eval()")
    factor = (variance.double() + module.eps).rsqrt()
    if weight is not None:
        factor = factor * weight.detach().double()
    shift = -mean.double() * factor
    if bias is not None:
        shift = shift + bias.detach().double()
    chain.scale(factor.cpu().numpy(), shift.cpu().numpy(), name)


def _add_function(
    chain: Chain, node: torch.fx.Node, name: str, counts: set[torch.fx.Node],
    constants: dict[torch.fx.Node, Any],
) -> None:  # fmt: skip
    function = _function(node)
    options = {key: value for key, value in node.kwargs.items() if key != "input"}
    args: Any = node.args if "input" in node.kwargs else node.args[1:]
    if function in _CLAMPS:
        bounds = _CLAMPS[function] | dict(zip(_CLAMPS[function], args, strict=False)) | options
        low, high = (bounds.get(x, bounds.get(f"{x}_val")) for x in ("min", "max"))
        if not all(isinstance(x, int | float | None) for x in (low, high)):
            raise unsupported(name, "a bound is not a number")
        chain.clamp(low, high, name)
    elif function == "linear":
        values = dict(zip(("weight", "bias"), args, strict=False)) | options
        add_linear(chain, {key: constants.get(x) for key, x in values.items()}, name)
    elif function == "batch_norm" and _is_aten(node):
        keys = "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps"
        held = {key: constants.get(x, x) for key, x in zip(keys, args, strict=False)}
        _add_norm(chain, SimpleNamespace(_parameters=held, **held), name)
    elif function == "flatten":
        dimensions: Any = _FLATTENED | dict(zip(_FLATTENED, args, strict=False)) | options
        start, end = dimensions["start_dim"], dimensions["end_dim"]
        if start != 1 or end not in (1, -1):
            raise unsupported(name, f"it flattens dimensions {start} to {end}, not 1 to -1")
    elif function in ("view", "reshape"):
        shape: Any = args[0] if len(args) == 1 else args or options.get("shape")
        is_shape = isinstance(shape, tuple | list) and len(shape) == 2
        if not is_shape or not (shape[0] == -1 or shape[0] in counts) or shape[1] in counts:
            raise unsupported(name, f"its shape is {shape}, not (-1, n)")
    elif function not in _DROPOUTS:
        raise unsupported(name, _OTHERS)


def _is_aten(node: torch.fx.Node) -> bool:
    """Whether a node is a function of an exported program."""
    return getattr(node.target, "namespace", "") == "aten"


def _function(node: torch.fx.Node) -> str:
    """Return the name of a PyTorch function or method, without the _ of in-place variants."""
    if _is_aten(node):  # aten.relu.default
        return str(node.target).split(".")[1].removesuffix("_")
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    known = [getattr(namespace, str(name), None) for namespace in (torch, functional)]
    if node.op == "call_function" and node.target not in known:
        return ""
    return str(name).removesuffix("_")
