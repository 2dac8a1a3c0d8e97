"""The layers that an ONNX graph computes, or an error that names the node.

Constants are NumPy arrays; sparse ones are SciPy's.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import ArgumentError, FormatError, GbdnnError, ShapeError
from gbdnn.io.frameworks.chain import Chain, no_meaning
from gbdnn.io.frameworks.scipy import scipy_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.model.network import Network


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


class OnnxGraph:
    """An ONNX ``GraphProto``: its constants, folded, and who reads which result.

    Parameters
    ----------
    model : ModelProto
    """

    def __init__(self, model: Any) -> None:
        graph = self._graph = model.graph
        constants: dict[str, Any] = {tensor.name: _dense(tensor) for tensor in graph.initializer}
        constants |= {tensor.values.name: _sparse(tensor) for tensor in graph.sparse_initializer}
        if len(constants) < len(graph.initializer) + len(graph.sparse_initializer):
            raise FormatError("two constants of one name")
        self._constants = constants
        # Files of before 2019 list their initialisers among the inputs.
        self._inputs = [value for value in graph.input if value.name not in constants]
        self._outputs = [value.name for value in graph.output]
        self._count = Counter(name for node in graph.node for name in node.input)
        self._count.update(self._outputs)
        self._readers: dict[str, tuple[str, Any]] = {}
        self._unfolded: dict[str, ArgumentError] = {}
        for k, node in enumerate(graph.node):
            name = f"node {node.name or k!r} ({node.op_type})"
            if any(x and x not in constants for x in node.input):
                for x in node.input:
                    self._readers.setdefault(x, (name, node))
                continue
            try:
                constants[node.output[0]] = _constant(node, constants, name, model.opset_import)
            except ArgumentError as err:  # where it is read
                self._unfolded[node.output[0]] = err

    def read(self, chain: Chain, *, logits: bool = False) -> Chain:
        """Add the layers from the graph's input to its output to `chain`."""
        names, outputs = [value.name for value in self._inputs], self._outputs
        if len(names) != 1:
            raise self._no_chain()
        (first,) = (value.type.tensor_type for value in self._inputs)
        shape = [x.dim_value for x in first.shape.dim] if first.HasField("shape") else None
        flow, before, head = self._walk(names[0], f"the input {names[0]!r}", chain, shape)
        if head is not None:
            if not logits:
                raise no_meaning(head, "with logits=True (in the shell --logits) it is left out")
        elif len(outputs) != 1:
            raise self._no_chain()
        elif flow != outputs[0]:
            why = f"the graph's output is {outputs[0]}, the chain ends at {flow}"
            raise no_meaning(before, why)
        return chain

    def parts(self) -> Iterator[tuple[str, Network, str]]:
        """Yield the chains within a graph that is not one: where each begins, and why it ends."""
        done: set[str] = set()
        for k, node in enumerate(self._graph.node):
            if node.op_type not in _PRODUCTS or node.output[0] in done:
                continue
            name, chain, why = f"node {node.name or k!r} ({node.op_type})", Chain(None), ""
            moving = [x for x in node.input if x and x not in self._constants]
            try:
                self._walk(moving[0] if moving else "", name, chain, None, node, done)
            except GbdnnError as err:
                why = str(err)
            try:
                net = chain.network()
            except GbdnnError:
                continue
            if len(net):
                yield name, net, why

    def _is_last(self, head: Any) -> bool:
        """Whether what follows a node makes labels and the like of its result, no sums."""
        behind = {head.output[0]}
        for node in self._graph.node:
            if not behind.isdisjoint(node.input):
                if node.op_type not in _BEHIND:
                    return False
                behind.update(node.output)
        return True

    def _no_chain(self) -> ArgumentError:
        inputs = ", ".join(value.name for value in self._inputs)
        return ArgumentError(
            f"a graph with inputs {inputs or '(none)'} and outputs"
            f" {', '.join(self._outputs) or '(none)'}; one of each has a meaning here"
        )

    def _walk(
        self,
        flow: str,
        before: str,
        chain: Chain,
        shape: list[int] | None,
        node: Any = None,
        done: set[str] | None = None,
    ) -> tuple[str, str, str | None]:
        """Follow a result from node to node, from `node` on if it is given.

        Returns
        -------
        str, str, str or None
            The last result, the node that it is of, and the Softmax or the like that reads it.
        """
        rank = 2 if shape is None else len(shape)
        for _ in self._graph.node:
            if node is not None:
                name = before
            elif flow not in self._readers or flow in self._outputs:
                if flow in self._outputs and self._count[flow] > 1:
                    raise no_meaning(before, "its result is used more than once: a skip")
                break
            else:
                name, node = self._readers[flow]
            if node.domain not in ("", "ai.onnx") and (node.domain, node.op_type) != _SCALER:
                raise no_meaning(name, f"it is of the domain {node.domain!r}")
            if node.op_type in _HEADS and chain.neurons is not None and self._is_last(node):
                return flow, before, name
            if node.op_type not in _OPERATORS:
                raise no_meaning(name)
            moving = [x for x in node.input if x and x not in self._constants]
            for x in moving:
                if x in self._unfolded:
                    raise self._unfolded[x]
            if moving != [flow]:
                what = f"it reads {', '.join(moving)}, where the chain is at {flow}"
                raise no_meaning(name, what)
            if name != before and self._count[flow] > 1:
                raise no_meaning(before, "its result is used more than once: a skip")
            given = [self._constants.get(x) for x in node.input]
            options = {x.name: _attribute(x) for x in node.attribute}
            if node.op_type in ("Flatten", "Reshape"):
                rank = 2
            elif rank != 2 and node.op_type in _OF_ROWS:
                many = any(x is not None and x.size > 1 for x in given)
                if many or node.op_type in _PRODUCTS:
                    what = f"what it reads has {rank} dimensions, not a row per input"
                    raise no_meaning(name, what)
            place = list(node.input).index(flow)
            _OPERATORS[node.op_type](chain, _Node(name, place, given, options, shape))
            flow, before, node = node.output[0], name, None
            if done is not None:
                done.add(flow)
        return flow, before, None


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


def _cast(chain: Chain, node: _Node) -> None:
    del chain
    if node.options.get("to") not in (1, 11):  # FLOAT, DOUBLE
        raise no_meaning(node.name, "it rounds, or makes other things of floats")


def _norm(chain: Chain, node: _Node) -> None:
    constants = node.given[1:5]
    if node.place != 0 or len(constants) < 4 or any(x is None for x in constants):
        raise no_meaning(node.name, "its means are not constant")
    if node.options.get("training_mode", 0):
        raise no_meaning(node.name, "it is normalised by the inputs at hand, as in training")
    scale, shift, mean, variance = (_array(x).astype(np.float64) for x in constants)
    if not scale.shape == shift.shape == mean.shape == variance.shape:
        raise ShapeError(f"{node.name}: {scale.size} factors and {mean.size} means")
    factors = scale / np.sqrt(variance + node.options.get("epsilon", 1e-5))
    chain.scale(factors, shift - mean * factors, node.name)


def _scale(chain: Chain, node: _Node) -> None:
    """A factor, or what Scaler of ai.onnx.ml has: ``(x - offset) * scale``."""
    if "scale" in node.options or "offset" in node.options:
        offset, factors = (
            np.atleast_1d(np.float64(node.options.get(key, default)))
            for key, default in (("offset", 0), ("scale", 1))
        )
        factors, offset = (x.reshape(()) if x.shape == (1,) else x for x in (factors, offset))
        chain.scale(factors, -offset * factors, node.name)
    else:
        factors = _vector(node.other(), chain.neurons, node).astype(np.float64)
        chain.scale(factors, np.zeros(()), node.name)


def _divide(chain: Chain, node: _Node) -> None:
    if node.place != 0:
        raise no_meaning(node.name, "it divides by its input")
    with np.errstate(divide="ignore"):
        factors = 1 / _vector(node.other(), chain.neurons, node).astype(np.float64)
    chain.scale(factors, np.zeros(()), node.name)


def _subtract(chain: Chain, node: _Node) -> None:
    b = _vector(node.other(), chain.neurons, node)
    if node.place == 0:
        chain.add(-b, node.name)
    else:
        chain.scale(np.full((), -1.0), b, node.name)


_PRODUCTS = ("Gemm", "MatMul")
_SCALER = ("ai.onnx.ml", "Scaler")
_OF_ROWS = (*_PRODUCTS, "Add", "BatchNormalization", "Div", "Mul", "Scaler", "Sub")
_HEADS = ("LogSoftmax", "Sigmoid", "Softmax")  # what makes probabilities of sums, at the end
_BEHIND = (  # and of probabilities labels
    "ArgMax", "ArrayFeatureExtractor", "Binarizer", "Cast", "Concat", "Identity", "Reshape",
    "Squeeze", "Sub", "TopK", "ZipMap",
)  # fmt: skip
_FOLDED = ("Cast", "DequantizeLinear", "Reshape", "Squeeze", "Transpose", "Unsqueeze")
_EVALUATED = {"DequantizeLinear": 19}  # the first version that ONNX's own evaluator has
_OPERATORS: dict[str, Callable[[Chain, _Node], None]] = {
    "Add": lambda chain, x: chain.add(_vector(x.other(), chain.neurons, x), x.name),
    "BatchNormalization": _norm,
    "Cast": _cast,
    "Clip": _clip,
    "Div": _divide,
    "Dropout": _pass,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "Identity": _pass,
    "MatMul": lambda chain, x: chain.linear(x.weights(), None, x.name),
    "Max": lambda chain, x: chain.clamp(_number(x.other()), None, x.name),
    "Mul": _scale,
    "Min": lambda chain, x: chain.clamp(None, _number(x.other()), x.name),
    "Relu": lambda chain, x: chain.clamp(0, None, x.name),
    "Reshape": _reshape,
    "Scaler": _scale,
    "Sub": _subtract,
}


def _constant(node: Any, constants: dict[str, Any], name: str, opsets: Any) -> Any:
    """Return the result of a node that has constant inputs alone."""
    given: list[Any] = [constants.get(x) for x in node.input]
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
    if node.op_type in _FOLDED and all(x is None or isinstance(x, np.ndarray) for x in given):
        return _folded(node, {x: constants[x] for x in node.input if x}, opsets)
    raise no_meaning(name, "it computes with constants; fold them at the export")


def _folded(node: Any, given: dict[str, np.ndarray], opsets: Any) -> np.ndarray:
    """Return what ONNX's own evaluator makes of constants."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    inputs, output = (
        [helper.make_value_info(name, helper.make_tensor_type_proto(1, None)) for name in names]
        for names in (given, node.output[:1])
    )
    graph = helper.make_graph([node], "constants", inputs, output)
    versions = [max(x.version, _EVALUATED.get(node.op_type, 0)) for x in opsets if not x.domain]
    imports = [helper.make_opsetid("", version) for version in versions]
    evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
    (found,) = evaluator.run(None, given)
    return _without_halves(np.asarray(found))


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
    return _without_halves(array)


def _without_halves(array: np.ndarray) -> np.ndarray:
    """Return an array as it is, or as float32, which holds all values of shorter floats."""
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
