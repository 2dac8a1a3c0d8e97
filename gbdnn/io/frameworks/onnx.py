"""Reading and writing of ONNX files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from gbdnn._version import __version__
from gbdnn.arrays.checks import as_dtype, require_room
from gbdnn.errors import ArgumentError, naming
from gbdnn.io.formats import Format
from gbdnn.io.frameworks.chain import Chain, add_everywhere
from gbdnn.io.frameworks.onnx_graph import read_graph
from gbdnn.io.frameworks.scipy import as_csc, scipy_sparse
from gbdnn.io.reading import foreign_errors, open_checked
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from pathlib import Path

    from gbdnn.model.network import Network

_OPSET, _IR_VERSION = 13, 8  # of 2021, for older readers
_LARGEST = 2**31 - 1  # bytes of a protobuf message


def _read(path: Path, *, dtype: Any = None, logits: bool = False) -> Network:
    wanted = None if dtype is None else as_dtype(dtype)
    onnx = _packages()
    with open_checked(path) as opened, foreign_errors(path, "is not a valid ONNX model"):
        model = onnx.load(opened, load_external_data=False)
        # Shape inference does not support sparse initializers.
        onnx.checker.check_model(str(path), full_check=not model.graph.sparse_initializer)
        onnx.load_external_data_for_model(model, str(path.parent))
    with naming(path):
        return read_graph(model, Chain(wanted), logits=logits).network()


def _write(net: Network, file: BinaryIO) -> None:
    """Write a Gemm and a Relu or Clip per layer; with ``inputs`` and ``outputs``."""
    onnx = _packages()
    add_everywhere(net)
    size = sum(layer.dtype.itemsize * layer.nrows * layer.ncols for layer in net)
    require_room(size, "dense weights")
    helper = onnx.helper
    element = helper.np_dtype_to_tensor_dtype(net[0].dtype)
    nodes, constants = _nodes(onnx, net)
    graph = helper.make_graph(
        nodes,
        "gbdnn",
        [helper.make_tensor_value_info("inputs", element, ["n", net.shape[0]])],
        [helper.make_tensor_value_info("outputs", element, ["n", net.shape[1]])],
        constants,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
        producer_name="gbdnn",
        producer_version=__version__,
    )
    if model.ByteSize() > _LARGEST:
        raise ArgumentError("an ONNX file must be smaller than 2 GiB")
    file.write(model.SerializeToString(deterministic=True))


def _nodes(onnx: Any, net: Network) -> tuple[list[Any], list[Any]]:
    """Return the nodes and the constants of a graph."""
    helper = onnx.helper
    nodes: list[Any] = []
    constants: list[Any] = []
    flow = "inputs"

    def constant(name: str, value: Any, dtype: np.dtype) -> None:
        constants.append(onnx.numpy_helper.from_array(np.asarray(value, dtype), name))

    for k, layer in enumerate(net):
        inputs = [flow, f"weights{k}"]
        constant(inputs[1], as_csc(layer).toarray(), layer.dtype)
        if np.ndim(layer.bias) or layer.bias:
            inputs.append(f"bias{k}")
            constant(inputs[2], layer.bias, layer.dtype)  # 0-D for one number
        flow = f"sums{k}"
        nodes.append(helper.make_node("Gemm", inputs, [flow], name=f"layer{k}"))
        if layer.clip is not None:
            low = f"zero{k}" if layer.activation == "relu" else ""
            if low:
                constant(low, 0.0, layer.dtype)
            constant(f"clip{k}", layer.clip, layer.dtype)
            nodes.append(helper.make_node("Clip", [flow, low, f"clip{k}"], [f"activations{k}"]))
        elif layer.activation == "relu":
            nodes.append(helper.make_node("Relu", [flow], [f"activations{k}"]))
        else:
            continue
        nodes[-1].name = f"activation{k}"
        flow = f"activations{k}"
    nodes[-1].output[0] = "outputs"
    return nodes, constants


def _packages() -> Any:
    """Return the package onnx with its submodules, after checking that SciPy is installed."""
    scipy_sparse()
    onnx, *_ = (
        require(name, "onnx", "ONNX files need the package onnx")
        for name in ("onnx", "onnx.checker", "onnx.helper", "onnx.numpy_helper")
    )
    return onnx


ONNX = Format(
    name="onnx",
    read=_read,
    write=_write,
    options="logits",
    suffixes=(".onnx",),
)
