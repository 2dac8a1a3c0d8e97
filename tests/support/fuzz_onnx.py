"""ONNX models with other fields, bytes and nodes; ONNX Runtime tells what is right, where it is."""

import importlib.util
import pathlib
import tempfile

import fuzz_mutations as mutate
import fuzz_protobuf
import numpy as np
from fuzz_cases import (
    WRONG_NETWORK,
    MisreadError,
    a_network,
    judged,
    layers_of,
    made,
    require_equal,
)


def _chains():
    """Graphs from `x` to `y` that together have every node that is read."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(3)
    W, V = rng.normal(size=(2, 5, 5)).round(3)
    b = rng.normal(size=5).round(3)
    node = helper.make_node
    given = {"W": W, "V": V, "b": b, "row": b[None], "one": np.array([0.5]), "low": np.array(0.0),
             "high": np.array(1.5), "to": np.array([-1, 5]), "same": np.array([0, -1])}  # fmt: skip
    constant = {"value": numpy_helper.from_array(V.astype(np.float32), "V2")}
    graphs = [
        (13, [node("Gemm", ["x", "W", "b"], ["y"], transB=1, alpha=0.5, beta=-2.0)]),
        (13, [node("Gemm", ["x", "W"], ["h"], name="fc"), node("Relu", ["h"], ["y"])]),
        (8, [node("MatMul", ["x", "W"], ["h"]), node("Add", ["h", "row"], ["g"]),
             node("Clip", ["g"], ["y"], min=0.0, max=2.0)]),
        (17, [node("MatMul", ["x", "W"], ["h"]), node("Add", ["b", "h"], ["g"]),
              node("Clip", ["g", "low", "high"], ["f"]), node("Gemm", ["f", "V", "one"], ["y"])]),
        (14, [node("MatMul", ["x", "W"], ["h"]), node("Max", ["low", "h"], ["g"]),
              node("Min", ["g", "high"], ["f"]), node("MatMul", ["f", "V"], ["y"])]),
        (13, [node("Flatten", ["x"], ["f"]), node("Reshape", ["f", "to"], ["r"]),
              node("Identity", ["W"], ["W2"]), node("Gemm", ["r", "W2", "b"], ["h"]),
              node("Reshape", ["h", "same"], ["d"]), node("Dropout", ["d"], ["y"])]),
        (12, [node("Constant", [], ["V2"], **constant), node("Transpose", ["V2"], ["Vt"]),
              node("Constant", [], ["c"], value_float=0.5), node("MatMul", ["x", "Vt"], ["h"]),
              node("Min", ["h", "c"], ["g"]), node("Identity", ["g"], ["y"])]),
    ]  # fmt: skip
    for opset, nodes in graphs:
        names = {name for each in nodes for name in each.input}
        graph = helper.make_graph(
            nodes,
            "graph",
            [helper.make_tensor_value_info("x", 1, ["n", 5])],
            [helper.make_tensor_value_info("y", 1, ["n", 5])],
            [
                numpy_helper.from_array(A.astype(np.float32) if A.dtype.kind == "f" else A, name)
                for name, A in given.items()
                if name in names
            ],
        )
        yield helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def onnx_files():
    import onnx

    import gbdnn

    files = [each.SerializeToString(deterministic=True) for each in _chains()]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "net.onnx")
        for sparse in (False, True):
            for dtype in ("FP32", "FP64"):
                gbdnn.io.write_onnx(a_network(dtype), path, sparse=sparse)
                files.append(path.read_bytes())
        files = [(data, b"") for data in files]
        place = "weights.bin"
        gbdnn.io.write_onnx(a_network("FP32"), path)
        model = onnx.load(str(path))
        onnx.save(model, str(path), save_as_external_data=True, location=place, size_threshold=0)
        files += [(path.read_bytes(), path.with_name(place).read_bytes())] * 2
    return files


def has_runtime():
    return importlib.util.find_spec("onnxruntime") is not None


def answers(path, width):
    """Inputs and the model's answer; None if nothing is to be said of it."""
    if not has_runtime():
        return _reference(path, width)
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
    except Exception as err:
        # Operator sets newer than this runtime, operators that it has in single precision alone.
        if "is under development" in str(err) or "NOT_IMPLEMENTED" in str(err):
            return None
        raise
    (given,) = session.get_inputs()
    if given.type == "tensor(float16)":
        return None
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}[given.type]
    X = _inputs(given.shape, width, dtype)
    return X, session.run(None, {given.name: X})[0]


def _reference(path, width):
    import onnx
    from onnx.reference import ReferenceEvaluator

    model = onnx.load(str(path))
    graph = model.graph
    for sparse in graph.sparse_initializer:  # which the package's evaluator does not take
        dense = np.zeros(sparse.dims, onnx.numpy_helper.to_array(sparse.values).dtype)
        places = onnx.numpy_helper.to_array(sparse.indices)
        at = tuple(places.T) if places.ndim > 1 else np.unravel_index(places, dense.shape)
        dense[at] = onnx.numpy_helper.to_array(sparse.values)
        graph.initializer.append(onnx.numpy_helper.from_array(dense, sparse.values.name))
    del graph.sparse_initializer[:]
    (given,) = (x for x in model.graph.input if x.name in ("x", "inputs"))
    tensor = given.type.tensor_type
    dtype = {1: np.float32, 11: np.float64}[tensor.elem_type]
    X = _inputs([x.dim_value or x.dim_param for x in tensor.shape.dim], width, dtype)
    with np.errstate(all="ignore"):
        return X, ReferenceEvaluator(model).run(None, {given.name: X})[0]


def _inputs(shape, width, dtype):
    """Some rows, in the shape that a model's input has."""
    shape = [3, width] if not shape else list(shape)
    for k, n in enumerate(shape):
        if (
            not isinstance(n, int) or n < 0
        ):  # a name, and to ONNX Runtime such a number, is any size
            shape[k] = [3, width][k > 0]
    if np.prod(shape, dtype=float) > 10**6:
        raise ValueError(shape)
    return np.abs(np.random.default_rng(1).normal(size=shape)).astype(dtype)


def case_onnx(rng, folder):
    import gbdnn

    data, weights = rng.choice(made("onnx", onnx_files))
    if rng.random() < 0.8:
        data = fuzz_protobuf.other_message(data, rng)
    else:
        data = mutate.damaged(data, rng, mutate.BINARY)
    path = folder / "net.onnx"
    path.write_bytes(data)
    if weights:
        weights = weights if rng.random() < 0.8 else mutate.damaged(weights, rng, mutate.BINARY)
        path.with_name("weights.bin").write_bytes(weights)

    def compare(layers, _):
        if (expected := answers(path, len(layers[0][0]))) is None:
            return
        X, Z = expected
        eps = 16 * max(X.shape[-1], 16) * np.finfo(X.dtype).eps
        Y, error = X.astype(float), np.zeros(X.shape)
        for W, b, activation, clip, _ in layers:
            require_equal(Y.shape[1:], W.shape[:1])
            sizes = np.abs(Y) @ np.abs(W) + np.abs(b)
            error = error @ np.abs(W) + eps * sizes + 16 * np.finfo(X.dtype).smallest_subnormal
            Y = Y @ W + b
            Y = np.maximum(Y, 0) if activation == "relu" else Y
            Y = Y if clip is None else np.minimum(Y, clip)
            if sizes.max(initial=0) > 1e30:
                return
        if Y.shape != Z.shape or not (np.abs(Y - Z) <= error).all():
            raise MisreadError(f"answers {Y.tolist()} where the model answers {Z.tolist()}")

    return judged(
        lambda: layers_of(gbdnn.io.read_onnx(path)), lambda: path, compare, errors=WRONG_NETWORK
    )
