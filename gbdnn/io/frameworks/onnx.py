"""Reading and writing of ONNX files."""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn._version import __version__
from gbdnn.arrays.checks import as_dtype, as_flag, as_path, require_room
from gbdnn.errors import ArgumentError, naming, require_kind
from gbdnn.io.files import whole_file
from gbdnn.io.format import Format
from gbdnn.io.frameworks.chain import Chain, add_everywhere
from gbdnn.io.frameworks.onnx_graph import read_graph
from gbdnn.io.frameworks.scipy import as_csc, scipy_sparse
from gbdnn.io.reading import foreign_errors, open_checked
from gbdnn.model.network import Network
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    import os


_OPSET, _IR_VERSION = 13, 8  # of 2021, for older readers
_LARGEST = 2**31 - 1  # bytes of a protobuf message


def read_onnx(path: str | os.PathLike[str], *, dtype: Any = None, logits: bool = False) -> Network:
    """Read a network from an ONNX file.

    Parameters
    ----------
    path : path-like
        A model with one input, one output and a chain of these operators: Gemm and MatMul with
        constant weights, dense or sparse, of 16, 32 or 64 bits; Relu; Clip, Max and Min with a
        lower bound of 0 or none; Add, Sub, Mul and Div with constants, BatchNormalization and
        scikit-learn's Scaler (merged into a layer); Cast and CastLike to float or double, Flatten,
        Reshape to ``(-1, n)``, Identity and Dropout (ignored). Constants may be computed from
        others, as by a mask or DequantizeLinear, and in external files.
    dtype : {"FP32", "FP64"} or NumPy dtype, optional
        Default: FP64 for double, FP32 for float, float16 and bfloat16; layers must agree.
    logits : bool, default False
        Drop a Softmax, LogSoftmax or Sigmoid after the last layer, and everything after it.

    Returns
    -------
    Network
        With the bias rule ``all``.

    Raises
    ------
    MissingFileError, MissingPackageError
        The file does not exist; the package onnx or SciPy is not installed.
    FormatError
        The model is invalid, or a file of external data is missing or too short.
    ArgumentError
        An operator is not supported (such as Conv, skip connections, Softmax without `logits`), or
        a value is not finite; the message names operator and node.
    ShapeError
        Two layers, or a layer and its bias, do not fit.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "net.onnx"
    >>> net = gbdnn.Network([gbdnn.Layer([[1.0, 0.5]] @ np.eye(2), -0.5, clip=6)])
    >>> gbdnn.io.write_onnx(net, file)
    >>> gbdnn.io.read_onnx(file).isequal(net)
    True
    """
    wanted = None if dtype is None else as_dtype(dtype)
    as_flag(logits, "logits")
    onnx, file = _packages(), as_path(path)
    with open_checked(file) as opened, foreign_errors(file, "is not a valid ONNX model"):
        model = onnx.load(opened, load_external_data=False)
        # Shape inference does not support sparse initializers.
        onnx.checker.check_model(str(file), full_check=not model.graph.sparse_initializer)
        onnx.load_external_data_for_model(model, str(file.parent))
    with naming(file):
        return read_graph(model, Chain(wanted), logits=logits).network()


def write_onnx(net: Network, path: str | os.PathLike[str], *, replace: bool = False) -> None:
    """Write a network as ONNX: a Gemm and a Relu or Clip per layer.

    Parameters
    ----------
    net : Network
        With at least one layer. ONNX adds biases to every neuron, so layers with the bias rule
        ``entries`` must have no bias, or a ReLU and no positive bias.
    path : path-like
        Written atomically. The input is named ``inputs``, the output ``outputs``.
    replace : bool, default False
        Whether to replace an existing file; otherwise it raises an error.

    Raises
    ------
    ArgumentError
        The network has no layers, a layer under ``entries`` has no equivalent, or the file would
        exceed the format's limit of 2 GiB.
    OutputError, MissingPackageError
        The file cannot be written, or exists; the package onnx or SciPy is not installed.
    TooLargeError
        Dense weights do not fit into memory.

    Examples
    --------
    >>> import pathlib, tempfile, numpy as np, gbdnn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> gbdnn.io.write_onnx(gbdnn.Network([gbdnn.Layer(np.eye(3))]), folder / "net.onnx")
    >>> gbdnn.io.read_onnx(folder / "net.onnx").shape
    (3, 3)
    """
    require_kind(net, Network, "net must be a Network")
    as_path(path)
    onnx = _packages()
    add_everywhere(net)
    if not net:
        raise ArgumentError("a network without layers cannot be written as ONNX")
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
        raise ArgumentError(f"{path}: an ONNX file must be smaller than 2 GiB")
    with whole_file(path, replace=replace) as file:
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
    read=read_onnx,
    write=wraps(write_onnx)(partial(write_onnx, replace=True)),
    options="logits",
    suffixes=(".onnx",),
)
