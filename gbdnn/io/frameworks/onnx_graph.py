"""The layers that an ONNX graph computes, or an error that names the node.

Constants are NumPy arrays; sparse ones are SciPy's.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import ArgumentError, FormatError, ShapeError
from gbdnn.io.frameworks.chain import no_meaning
from gbdnn.io.frameworks.scipy import scipy_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gbdnn.io.frameworks.chain import Chain


class _Node(NamedTuple):
    """A node of the chain."""

    name: str
    place: int  # of the activations among its inputs
    given: list[Any]  # its inputs: constants, None for others
    options: dict[str, Any]  # its attributes
    shape: list[int] | None  # of the graph's input; a size is 0 if it is not told

    def constant(self, k: int) -> Any:
        """Return input `k`, or None."""
        return self.given[k] if k < len(self.given) else None

    def weights(self) -> Any:
        """Return the right factor of a product."""
        B = self.constant(1)
        if self.place != 0 or B is None:
            why = "its input is not the left factor, or it has no constant weights"
            raise no_meaning(self.name, why)
        if B.ndim != 2:
            raise no_meaning(self.name, f"its weights have shape {B.shape}; a matrix has two")
        return B

    def other(self) -> Any:
        """Return the constant that is the other one of two operands."""
        first, second = self.given
        return second if self.place == 0 else first


def read_graph(graph: Any, chain: Chain) -> Chain:
    """Add the layers of an ONNX ``GraphProto`` to `chain`."""
    constants: dict[str, Any] = {tensor.name: _dense(tensor) for tensor in graph.initializer}
    constants |= {tensor.values.name: _sparse(tensor) for tensor in graph.sparse_initializer}
    if len(constants) < len(graph.initializer) + len(graph.sparse_initializer):
        raise FormatError("two constants of one name")
    # Files of before 2019 list their initialisers among the inputs.
    inputs = [value.name for value in graph.input if value.name not in constants]
    outputs = [value.name for value in graph.output]
    if len(inputs) != 1 or len(outputs) != 1:
        raise ArgumentError(
            f"a graph with inputs {', '.join(inputs) or '(none)'} and outputs"
            f" {', '.join(outputs) or '(none)'}; one of each has a meaning here"
        )
    (first,) = (value.type.tensor_type for value in graph.input if value.name == inputs[0])
    shape = [x.dim_value for x in first.shape.dim] if first.HasField("shape") else None
    rank = 2 if shape is None else len(shape)
    readers = Counter(name for node in graph.node for name in node.input)
    readers.update(outputs)
    flow, before = inputs[0], f"the input {inputs[0]!r}"
    for k, node in enumerate(graph.node):
        name = f"node {node.name or k!r} ({node.op_type})"
        if node.domain not in ("", "ai.onnx"):
            raise no_meaning(name, f"it is of the domain {node.domain!r}")
        given = [constants.get(x) for x in node.input]
        moving = [x for x in node.input if x and x not in constants]
        if not moving:
            constants[node.output[0]] = _constant(node, given, name)
            continue
        if node.op_type not in _OPERATORS:
            raise no_meaning(name)
        if moving != [flow]:
            raise no_meaning(name, f"it reads {', '.join(moving)}, where the chain is at {flow}")
        if readers[flow] > 1:
            raise no_meaning(before, "its result is used more than once: a skip")
        options = {x.name: _attribute(x) for x in node.attribute}
        place = list(node.input).index(flow)
        if node.op_type in ("Flatten", "Reshape"):
            rank = 2
        elif rank != 2 and node.op_type in ("Gemm", "MatMul"):
            raise no_meaning(name, f"what it reads has {rank} dimensions, not a row per input")
        _OPERATORS[node.op_type](chain, _Node(name, place, given, options, shape))
        flow, before = node.output[0], name
    if flow != outputs[0]:
        raise no_meaning(before, f"the graph's output is {outputs[0]}, the chain ends at {flow}")
    return chain


def _gemm(chain: Chain, node: _Node) -> None:
    B, C, options = node.weights(), node.constant(2), node.options
    if options.get("transA", 0):
        raise no_meaning(node.name, "it transposes its input")
    W = _scaled(B.T if options.get("transB", 0) else B, options.get("alpha", 1.0))
    b = None if C is None else _scaled(_vector(C, W.shape[1], node), options.get("beta", 1.0))
    chain.linear(W, b, node.name)


def _clip(chain: Chain, node: _Node) -> None:
    # Attributes before opset 11, where float32's largest number is not a bound; then inputs.
    bounds = [node.options.get(x) for x in ("min", "max")]
    bounds = [None if x is None or abs(x) >= np.finfo(np.float32).max else x for x in bounds]
    for k, x in enumerate(node.given[1:3]):
        if x is not None:
            bounds[k] = _number(x)
    low, high = bounds
    chain.clamp(low, high, node.name)


def _pass(chain: Chain, node: _Node) -> None:
    del chain
    if node.place != 0 or any(x is not None and np.any(x) for x in node.given[2:]):
        raise no_meaning(node.name, "it drops at random, as in training")


def _flatten(chain: Chain, node: _Node) -> None:
    del chain
    if node.options.get("axis", 1) != 1:
        raise no_meaning(node.name, f"axis {node.options['axis']}, not 1, a row per input")


def _reshape(chain: Chain, node: _Node) -> None:
    to = _array(node.given[1]).tolist() if node.place == 0 else []
    rows, *sizes = node.shape or [0, 0]
    neurons = chain.neurons or math.prod(sizes)
    if not neurons and len(sizes) == 1:  # the file does not tell, and any number is the right one
        neurons = to[-1] if to else 0
    # 0 keeps the number of inputs, -1 infers it, an export for a fixed number has that number.
    if (
        len(to) != 2
        or to[0] not in (0, -1, rows)
        or to[1] not in (-1, neurons or -1)
        or (to[0] == 0 and node.options.get("allowzero", 0))
    ):
        raise no_meaning(node.name, f"a shape of {to} and not (-1, n), a row per input")


_OPERATORS: dict[str, Callable[[Chain, _Node], None]] = {
    "Add": lambda chain, x: chain.add(_vector(x.other(), chain.neurons, x), x.name),
    "Clip": _clip,
    "Dropout": _pass,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "Identity": _pass,
    "MatMul": lambda chain, x: chain.linear(x.weights(), None, x.name),
    "Max": lambda chain, x: chain.clamp(_number(x.other()), None, x.name),
    "Min": lambda chain, x: chain.clamp(None, _number(x.other()), x.name),
    "Relu": lambda chain, x: chain.clamp(0, None, x.name),
    "Reshape": _reshape,
}


def _constant(node: Any, given: Sequence[Any], name: str) -> Any:
    """Return the result of a node that has constant inputs alone."""
    if node.op_type == "Constant" and len(node.attribute) == 1:
        attribute = node.attribute[0]
        if attribute.name == "value":
            return _dense(attribute.t)
        if attribute.name == "sparse_value":
            return _sparse(attribute.sparse_tensor)
        if attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
            return np.asarray(_attribute(attribute))
    if node.op_type == "Identity":
        return given[0]
    if node.op_type == "Transpose" and given[0].ndim == 2:
        order = next((list(x.ints) for x in node.attribute), [1, 0])
        return given[0].T if order == [1, 0] else given[0]
    raise no_meaning(name, "it computes with constants; fold them at the export")


def _attribute(attribute: Any) -> Any:
    from onnx.helper import get_attribute_value

    return get_attribute_value(attribute)


def _dense(tensor: Any) -> np.ndarray:
    from onnx import checker, numpy_helper

    try:
        checker.check_tensor(tensor)
        array: np.ndarray = numpy_helper.to_array(tensor)
    except Exception as err:  # a type that NumPy lacks, too few bytes
        raise FormatError(f"the constant {tensor.name!r}: {err}") from err
    # float32 holds every value of half precision and bfloat16.
    return array.astype(np.float32) if array.dtype.kind in "fV" and array.itemsize < 4 else array


def _sparse(tensor: Any) -> Any:
    """Return a sparse tensor; an entry's index is one number (linear) or two (row, column)."""
    from onnx import checker

    name, shape = tensor.values.name, tuple(tensor.dims)
    if len(shape) != 2:
        raise ShapeError(f"the sparse constant {name!r} has shape {shape}; a matrix has two")
    try:
        checker.check_sparse_tensor(tensor)
    except Exception as err:  # an index out of range, twice, or not in order
        raise FormatError(f"the sparse constant {name!r}: {err}") from err
    values, places = _dense(tensor.values), _dense(tensor.indices)
    coordinates = np.unravel_index(places, shape) if places.ndim == 1 else places.T
    return scipy_sparse().coo_array((values, tuple(coordinates)), shape=shape)


def _number(x: Any) -> float:
    found = _array(x)
    if found.ndim > 2:
        raise ValueError(f"a bound of shape {found.shape}")
    return float(found.item())


def _array(x: Any) -> np.ndarray:
    """Return a constant as a dense array."""
    return x if isinstance(x, np.ndarray) else x.toarray()


def _vector(x: Any, ncols: int | None, node: _Node) -> np.ndarray:
    """Return a bias: 0-D, or 1-D with one value per neuron."""
    b = _array(x)
    if b.ndim > 2 or (b.ndim > 1 and b.size != b.shape[-1]):
        raise no_meaning(node.name, f"a bias of shape {b.shape}, not one value per neuron")
    b = b.reshape(b.shape[-1:])
    return b.reshape(()) if b.shape == (1,) and ncols not in (None, 1) else b


def _scaled(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * x.dtype.type(factor)
