"""The programs that `real_networks` compares, each in its own process.

Each function prepares a network and returns ``ready(nthreads)``, which returns ``run(x)``; only
`run` is timed. Each variant of PyTorch is as fast as its public interface allows: no gradients,
in-place ReLU, 32-bit indices, column-wise activations with CSR weights, vectors for single inputs.
"""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import dense_problems
import numpy as np
from processes import Process, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Ready = Callable[[int], Callable[[np.ndarray], Any]]

OWN = ("infer", "compiled")
TITLES = {
    "infer": "gbdnn.infer",
    "compiled": "gbdnn.compile",
    "torch": "PyTorch dense",
    "torch_csr": "PyTorch CSR",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO FP32",
    "openvino_bf16": "OpenVINO bfloat16",
    "deepsparse": "DeepSparse",
}
# Precision of programs that do not compute in FP32.
PRECISIONS = {"openvino_bf16": "bfloat16"}

_MOST_CALLS = 300


def infer(folder: Path) -> Ready:
    """`gbdnn.infer`, which returns a Matrix."""
    import gbdnn

    net = dense_problems.load(folder).network()
    gbdnn.compile(net)  # loads or compiles machine code before the first call
    return lambda nthreads: partial(gbdnn.infer, net, nthreads=nthreads)


def compiled(folder: Path) -> Ready:
    """`gbdnn.compile`, which returns an array."""
    import gbdnn

    net = dense_problems.load(folder).network()
    return lambda nthreads: gbdnn.compile(net, nthreads=nthreads)


def torch(folder: Path) -> Ready:
    """PyTorch with dense weights."""
    import torch

    problem = dense_problems.load(folder)
    weights = [torch.from_numpy(np.ascontiguousarray(W.T)) for W in problem.weights]
    biases = [torch.from_numpy(b) for b in problem.biases]
    layers = list(zip(weights, biases, problem.limits, strict=True))

    @torch.inference_mode()
    def run(x: np.ndarray) -> np.ndarray:
        Y = torch.from_numpy(x)
        for W, b, limits in layers:
            Y = _limited(torch.nn.functional.linear(Y, W, b), *limits)
        return Y.numpy()

    def ready(nthreads: int) -> Callable[[np.ndarray], np.ndarray]:
        torch.set_num_threads(nthreads)
        return run

    return ready


def torch_csr(folder: Path) -> Ready:
    """PyTorch, CSR weights x dense activations."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    problem = dense_problems.load(folder)
    layers = [
        (_csr(torch, W), torch.from_numpy(b), limits)
        for W, b, limits in zip(problem.weights, problem.biases, problem.limits, strict=True)
    ]

    @torch.inference_mode()
    def run(x: np.ndarray) -> np.ndarray:
        single = len(x) == 1
        Y = torch.from_numpy(x)[0] if single else torch.from_numpy(x).T.contiguous()
        for W, b, limits in layers:
            Y = _limited((W @ Y).add_(b if single else b[:, None]), *limits)
        return (Y[None] if single else Y.T).numpy()

    def ready(nthreads: int) -> Callable[[np.ndarray], np.ndarray]:
        torch.set_num_threads(nthreads)
        return run

    return ready


def onnxruntime(folder: Path) -> Ready:
    """ONNX Runtime with dense weights."""
    import onnxruntime

    model = _model(folder)

    @cache
    def ready(nthreads: int) -> Callable[[np.ndarray], np.ndarray]:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = nthreads, 1
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        (given,) = session.get_inputs()
        rest = [each if isinstance(each, int) else -1 for each in given.shape[1:]]
        return lambda x: session.run(None, {given.name: x.reshape(len(x), *rest)})[0]

    return ready


def openvino(folder: Path) -> Ready:
    """OpenVINO in FP32 with dense weights."""
    return _openvino(folder, "f32")


def openvino_bf16(folder: Path) -> Ready:
    """OpenVINO in bfloat16, its default on processors with bfloat16 instructions."""
    import openvino

    if "BF16" not in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ImportError("the processor has no instructions for bfloat16")
    return _openvino(folder, "bf16")


def _openvino(folder: Path, precision: str) -> Ready:
    import openvino

    core, file = openvino.Core(), _model(folder)

    @cache
    def request(inputs: int, nthreads: int) -> Any:
        model = core.read_model(file)
        model.reshape([inputs, *list(model.input(0).partial_shape)[1:]])
        options = {"INFERENCE_NUM_THREADS": nthreads, "NUM_STREAMS": 1}
        options |= {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
        network = core.compile_model(model, "CPU", options)
        used = network.get_property("INFERENCE_PRECISION_HINT").to_string()
        if used != precision:
            raise ValueError(f"OpenVINO computes in {used}, not in {precision}")
        return network.create_infer_request()

    return lambda nthreads: lambda x: request(len(x), nthreads).infer([x], share_inputs=True)[0]


def deepsparse(folder: Path) -> Ready:
    """DeepSparse, which compiles for a number of inputs in the warm-up round."""
    os.environ["NM_DISABLE_ANALYTICS"] = "1"
    import deepsparse

    model = _model(folder)

    @cache
    def engine(inputs: int, nthreads: int) -> Any:
        return deepsparse.compile_model(model, batch_size=inputs, num_cores=nthreads)

    return lambda nthreads: lambda x: engine(len(x), nthreads).run([x])[0]


PROGRAMS = {
    each.__name__: each
    for each in (
        infer, compiled, torch, torch_csr, onnxruntime, openvino, openvino_bf16, deepsparse
    )
}  # fmt: skip


def processes(names: Iterable[str], folder: Path, pythons: dict[str, str]) -> list[Process]:
    """Start programs on the problem in a folder, some with their own interpreter."""
    return [
        Process(each, __file__, each, folder, python=pythons.get(each, sys.executable))
        for each in names
    ]


def _model(folder: Path) -> str:
    """Return the file of the network in ONNX."""
    file = folder / "net.onnx"
    if not file.exists():
        raise ImportError("onnx, which writes the network, is not installed")
    return str(file)


def _limited(Z: Any, low: float | None, high: float | None) -> Any:
    if low is None and high is None:
        return Z
    return Z.relu_() if high is None else Z.clamp_(low, high)


def _csr(torch: Any, W: np.ndarray) -> Any:
    """Return ``W'`` with 32-bit indices."""
    import scipy.sparse as sp

    A = sp.csr_array(W.T)
    return torch.sparse_csr_tensor(
        *(torch.from_numpy(each) for each in (A.indptr.astype("i4"), A.indices.astype("i4"))),
        torch.from_numpy(A.data),
        A.shape,
    )


def _prepared(name: str, folder: Path) -> Callable[..., dict[str, Any]]:
    """Return a function that times calls of a program and checks its result."""
    ready = PROGRAMS[name](folder)
    features, labels = (np.load(folder / f"{each}.npy") for each in ("features", "labels"))

    def run(nthreads: int, inputs: int, at_least: float, apart: float = 0.0) -> dict[str, Any]:
        calls, Y = _timed(ready(nthreads), features[:inputs], at_least, apart)
        Y = Y.to_dense(fill_value=0) if name == "infer" else Y
        truth = np.load(folder / f"answer-{inputs}.npy")
        largest = np.abs(truth).max() or 1.0
        error = np.abs(Y[dense_problems.checked(inputs)] - truth).max() / largest
        known = labels[:inputs]
        right = float((Y.argmax(1)[: len(known)] == known).mean()) if len(known) else None
        is_shaped = list(Y.shape) == [inputs, truth.shape[1]]
        return {
            "seconds": median(calls),
            "calls": calls,
            "error": float(error) if is_shaped else np.inf,
            "right": right,
        }

    return run


def _timed(
    run: Callable[[np.ndarray], Any], x: np.ndarray, at_least: float, apart: float = 0.0
) -> tuple[list[float], Any]:
    """Return the seconds of calls with pauses of `apart` ms, and a result."""
    taken: list[float] = []
    while True:
        began = perf_counter()
        Y = run(x)
        taken.append(perf_counter() - began)
        if sum(taken) >= at_least or len(taken) == _MOST_CALLS:
            return taken, Y
        if apart:
            sleep(apart / 1000)


if __name__ == "__main__":
    serve(lambda: _prepared(sys.argv[1], Path(sys.argv[2])))
