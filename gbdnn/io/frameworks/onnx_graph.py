"""Conversion of an ONNX graph to layers, with errors that name operator and node."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import ArgumentError, ShapeError
from gbdnn.io.frameworks.chain import Chain, unsupported
from gbdnn.io.frameworks.scipy import scipy_sparse
from gbdnn.io.reading import foreign_errors

if TYPE_CHECKING:
    from collections.abc import Callable

_OLDEST = 7  # in older operator sets a bias needs the attributes ``broadcast`` and ``axis``
_HEADS = ("LogSoftmax", "Sigmoid", "Softmax")
_PASSED = ("Cast", "CastLike", "Dropout", "Flatten", "Identity", "Reshape")


_FOLDED = {
    "Add", "Cast", "CastLike", "Concat", "Constant", "DequantizeLinear", "Div", "Gather",
    "Identity", "Mul", "Neg", "Reciprocal", "Reshape", "Sqrt", "Squeeze", "Sub", "Transpose",
    "Unsqueeze",
}  # fmt: skip
_DEQUANTIZE = 19  # the oldest operator set for which onnx computes it; earlier ones mean the same


class _Node(NamedTuple):
    """A node of the chain."""

    name: str
    place: int  # of the activations among its inputs
    inputs: list[Any]  # arrays for constants, None for others
    options: dict[str, Any]  # its attributes
    shape: list[int]  # of the activations if they are not flat yet

    def array(self, k: int, *, what: str = "input") -> np.ndarray:
        """Return constant input `k` as floats of 32 or 64 bits."""
        x = self.inputs[k] if k < len(self.inputs) else None
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            raise unsupported(self.name, f"its {what} is not a dense, constant float tensor")
        return x

    def bias(self, k: int, neurons: int | None) -> np.ndarray:
        """Return constant input `k` as a bias: 0-D, or one value per neuron."""
        b = self.array(k, what="bias")
        if self.shape and b.size > 1:
            with foreign_errors(self.name, "its numbers do not fit its input"):
                b = np.broadcast_to(b, (1, *self.shape[1:])).ravel()
        if b.ndim > 2 or b.size != (b.shape or (1,))[-1]:
            raise unsupported(self.name, f"its bias has shape {b.shape}")
        return b.reshape(() if b.size == 1 and neurons != 1 else b.shape[-1:])

    def number(self, k: int) -> float:
        """Return constant input `k`, one number."""
        x = self.array(k, what="bound")
        if x.size != 1:
            raise unsupported(self.name, "its bound is not one number")
        return float(x.item())

    def others(self) -> list[float]:
        """Return all constant inputs, one number each."""
        return [self.number(k) for k in range(len(self.inputs)) if k != self.place]

    def weights(self) -> Any:
        """Return the right factor of a product."""
        B = self.inputs[1] if len(self.inputs) > 1 else None
        if self.place != 0 or B is None:
            raise unsupported(self.name, "its right factor is not constant")
        if B.ndim != 2 or B.dtype.kind != "f":
            raise unsupported(self.name, f"its weights have shape {B.shape} and dtype {B.dtype}")
        return B


def read_graph(model: Any, chain: Chain, *, logits: bool) -> Chain:
    """Add the layers of a model to `chain`; `logits` drops a final Softmax or Sigmoid.

    The nodes of a model are in topological order.
    """
    from onnx import defs

    newest = defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not _OLDEST <= opset.version <= newest:
            raise ArgumentError(
                f"unsupported operator set {opset.version}; this version of the package onnx"
                f" supports {_OLDEST} to {newest}"
            )
    graph = model.graph
    constants: dict[str, Any] = {tensor.name: _dense(tensor) for tensor in graph.initializer}
    constants |= {tensor.values.name: _sparse(tensor) for tensor in graph.sparse_initializer}
    # Models of before 2019 list their initializers among the inputs.
    inputs = [value for value in graph.input if value.name not in constants]
    if len(inputs) != 1:
        raise ArgumentError(f"the model must have one input, not {len(inputs)}")
    flow = inputs[0].name
    shape = [x.dim_value for x in inputs[0].type.tensor_type.shape.dim]
    is_flat = len(shape) in (0, 2)
    needed = {value.name for value in graph.output}
    live = set()
    for k, node in reversed(list(enumerate(graph.node))):
        if needed.intersection(node.output):
            live.add(k)
            needed.update(node.input)
    for k, node in enumerate(graph.node):
        if k not in live:
            continue
        operator = (
            node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"
        )
        name = f"ONNX operator {operator} (node {node.name or k!r})"
        moving = [x for x in node.input if x and x not in constants]
        if not moving:
            constants.update(zip(node.output, _folded(model, node, constants, name), strict=False))
            continue
        if operator == "CastLike" and node.input[0] in constants:  # as the activations
            held = constants[node.input[0]]
            constants[node.output[0]] = held if held.dtype.kind == "f" else held.astype("f8")
            continue
        if operator == "Shape" and moving == [flow]:  # 0: the number of inputs
            constants[node.output[0]] = np.array(
                [0, *([chain.neurons] if chain.neurons else shape[1:])]
            )
            continue
        if operator in _HEADS and chain.neurons is not None:
            if any(x.op_type in ("Gemm", "MatMul") for x in graph.node[k:]):
                raise unsupported(name)
            if not logits:
                raise unsupported(name, "pass logits=True to drop it")
            return chain
        if operator not in _OPERATORS:
            raise unsupported(name)
        if moving != [flow]:
            raise unsupported(
                name, f"it reads {', '.join(moving)} instead of {flow}, a skip connection"
            )
        if not is_flat and operator not in (*_PASSED, "Add", "Div", "Mul", "Sub"):
            raise unsupported(name, f"its input has {len(shape)} dimensions, not two")
        options = {x.name: _attribute(x) for x in node.attribute}
        values = [constants.get(x) for x in node.input]
        place = list(node.input).index(flow)
        step = _Node(name, place, values, options, [] if is_flat else shape)
        is_flat = is_flat or operator in ("Flatten", "Reshape")
        if operator == "Reshape":
            _reshape(step, shape, chain.neurons or math.prod(shape[1:]))
        else:
            _OPERATORS[operator](chain, step)
        flow = node.output[0]
    outputs = [value.name for value in graph.output]
    if outputs != [flow]:
        raise ArgumentError(f"the outputs of the model are {', '.join(outputs)}, not only {flow}")
    return chain


def _gemm(chain: Chain, node: _Node) -> None:
    W, options = node.weights(), node.options
    if options.get("transA", 0):
        raise unsupported(node.name, "it transposes its input")
    W = (W.T if options.get("transB", 0) else W) * W.dtype.type(options.get("alpha", 1.0))
    b = None
    if len(node.inputs) > 2 and node.inputs[2] is not None:  # None: an omitted bias, named ""
        b = node.bias(2, W.shape[1])
        b = b * b.dtype.type(options.get("beta", 1.0))
    chain.linear(W, b, node.name)


def _cast(chain: Chain, node: _Node) -> None:
    """Accept a cast to float, with which exports of scikit-learn begin."""
    if node.options["to"] not in (1, 11):  # FLOAT, DOUBLE
        raise unsupported(node.name, "it casts to a type other than float or double")


def _cast_like(chain: Chain, node: _Node) -> None:
    """Accept a cast of the activations to the dtype of constant floats."""
    node.array(1)


def _clip(chain: Chain, node: _Node) -> None:
    # Attributes before operator set 11, where the largest float32 means no bound; then inputs.
    low, high = (node.options.get(key) for key in ("min", "max"))
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        low = node.number(1)
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        high = node.number(2)
    largest = float(np.finfo(np.float32).max)
    chain.clamp(None if low == -largest else low, None if high == largest else high, node.name)


def _scaler(chain: Chain, node: _Node) -> None:
    """Add the Scaler of scikit-learn's exports: ``(x - offset) * scale``."""
    offset, scale = (np.array(node.options[key], np.float64) for key in ("offset", "scale"))
    chain.scale(scale, -offset * scale, node.name)


def _dropout(chain: Chain, node: _Node) -> None:
    if any(x is not None and np.any(x) for x in node.inputs[2:]):
        raise unsupported(node.name, "it is in training mode")


def _flatten(chain: Chain, node: _Node) -> None:
    if node.options.get("axis", 1) != 1:
        raise unsupported(node.name, f"its axis is {node.options['axis']}, not 1")


def _reshape(node: _Node, shape: list[int], neurons: int) -> None:
    """Check that a Reshape keeps one row per input: (-1, n), (0, -1) or the exported number."""
    to = node.inputs[1].tolist() if isinstance(node.inputs[1], np.ndarray) else []
    if len(to) != 2 or to[0] not in (-1, 0, *shape[:1]) or to[1] not in (-1, neurons or to[1]):
        raise unsupported(node.name, f"its shape {to} does not keep one row per input")


def _norm(chain: Chain, node: _Node) -> None:
    if node.options.get("training_mode", 0):
        raise unsupported(node.name, "it is in training mode")
    scale, shift, mean, variance = (node.array(k).astype(np.float64) for k in range(1, 5))
    if scale.ndim != 1 or not scale.shape == shift.shape == mean.shape == variance.shape:
        raise ShapeError(f"{node.name}: has {scale.size} factors but {mean.size} means")
    factors = scale / np.sqrt(variance + node.options.get("epsilon", 1e-5))
    chain.scale(factors, shift - mean * factors, node.name)


def _affine(chain: Chain, node: _Node) -> None:
    """Add, subtract, multiply or divide by one number, or one per neuron."""
    operator, is_first = node.name.split()[2], node.place == 0
    b = node.bias(1 - node.place, chain.neurons)
    if operator == "Add" or (operator == "Sub" and is_first):
        chain.add(b if operator == "Add" else -b, node.name)
    elif operator == "Sub":
        chain.scale(-np.ones(1), b, node.name)
    elif operator == "Mul" or is_first:
        b = b.astype(np.float64)
        chain.scale(b if operator == "Mul" else 1 / b, np.zeros(1), node.name)
    else:
        raise unsupported(node.name, "it divides by its input")


_OPERATORS: dict[str, Callable[[Chain, _Node], None]] = {
    "Add": _affine,
    "BatchNormalization": _norm,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Div": _affine,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "Identity": lambda chain, node: None,
    "MatMul": lambda chain, node: chain.linear(node.weights(), None, node.name),
    "Max": lambda chain, node: chain.clamp(max(node.others(), default=None), None, node.name),
    "Mul": _affine,
    "Min": lambda chain, node: chain.clamp(None, min(node.others(), default=None), node.name),
    "Relu": lambda chain, node: chain.clamp(0, None, node.name),
    "Reshape": lambda chain, node: None,
    "Sub": _affine,
    "ai.onnx.ml.Scaler": _scaler,
}


def _folded(model: Any, node: Any, constants: dict[str, Any], name: str) -> list[Any]:
    """Return the results of a node with constant inputs."""
    from onnx import helper, reference

    inputs = {x: constants[x] for x in node.input if x}
    options = {x.name: x for x in node.attribute}
    if "sparse_value" in options:
        return [_sparse(options["sparse_value"].sparse_tensor)]
    if not all(isinstance(x, np.ndarray) for x in inputs.values()) and node.op_type == "Transpose":
        return [next(iter(inputs.values())).T]
    if node.op_type not in _FOLDED:
        raise unsupported(name, "it computes with constants; ONNX Runtime folds them when it saves"
        " an optimized model")  # fmt: skip
    value = helper.make_empty_tensor_value_info
    graph = helper.make_graph([node], "node", [*map(value, inputs)], [*map(value, node.output)])
    (version,) = (x.version for x in model.opset_import if x.domain in ("", "ai.onnx"))
    if node.op_type == "DequantizeLinear":
        version = max(version, _DEQUANTIZE)
    one = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
    with foreign_errors(name, "cannot compute a constant"):
        outputs = reference.ReferenceEvaluator(one).run(None, inputs)
    halves = [x.dtype.itemsize == 2 and x.dtype.kind not in "iu" for x in outputs]
    return [
        x.astype(np.float32) if is_half else x for x, is_half in zip(outputs, halves, strict=True)
    ]


def _attribute(attribute: Any) -> Any:
    from onnx.helper import get_attribute_value

    return get_attribute_value(attribute)


def _dense(tensor: Any) -> np.ndarray:
    """Return a tensor; 16-bit floats as float32, which is exact."""
    from onnx import numpy_helper

    with foreign_errors(f"constant {tensor.name!r}", "cannot be read"):
        array: np.ndarray = numpy_helper.to_array(tensor)
    is_half = tensor.data_type in (tensor.FLOAT16, tensor.BFLOAT16)
    return array.astype(np.float32) if is_half else array


def _sparse(tensor: Any) -> Any:
    """Return a sparse tensor; an entry's index is one number (linear) or two (row, column)."""
    name, shape = tensor.values.name, tuple(tensor.dims)
    if len(shape) != 2:
        raise ShapeError(
            f"the sparse constant {name!r} must have two dimensions, not shape {shape}"
        )
    values, places = _dense(tensor.values), _dense(tensor.indices)
    coordinates = np.unravel_index(places, shape) if places.ndim == 1 else places.T
    return scipy_sparse().coo_array((values, tuple(coordinates)), shape=shape)
