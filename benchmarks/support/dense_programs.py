"""The programs that `real_networks` compares, each in its own process.

Each function prepares a network and returns ``ready(nthreads)``, which returns ``run(x)``; only
`run` is timed. Each variant of PyTorch is as fast as its public interface allows: no gradients,
in-place ReLU, 32-bit indices, column-wise activations with CSR weights, vectors for single inputs.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import inf
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import dense_problems
import numpy as np
import tiled_programs
from processes import Program, Programs, serve

if TYPE_CHECKING:
    from collections.abc import Callable

    Ready = Callable[[int], Callable[[np.ndarray], Any]]

# Programs are "own" (gbdnn) or compute in "bfloat16", the others in FP32.
PROGRAMS = Programs(__file__)
_MOST_CALLS = 300


@PROGRAMS.add("gbdnn.infer", "own")
def infer(folder: Path) -> Ready:
    """`gbdnn.infer`, which returns a Matrix."""
    import gbdnn

    net = dense_problems.load(folder).network()
    gbdnn.compile(net)  # loads the kernels before the first call
    return lambda nthreads: partial(gbdnn.infer, net, nthreads=nthreads)


@PROGRAMS.add("gbdnn.compile", "own")
def compiled(folder: Path) -> Ready:
    """`gbdnn.compile`, which returns an array."""
    import gbdnn

    net = dense_problems.load(folder).network()
    return lambda nthreads: gbdnn.compile(net, nthreads=nthreads)


@PROGRAMS.add("PyTorch dense")
def torch(folder: Path) -> Ready:
    """PyTorch with dense weights."""
    import torch

    problem = dense_problems.load(folder)
    weights = [torch.from_numpy(np.ascontiguousarray(W.T)) for W in problem.weights]
    biases = [torch.from_numpy(b) for b in problem.biases]

    def forward(x: np.ndarray) -> np.ndarray:
        Y = torch.from_numpy(x)
        for W, b, limits in zip(weights, biases, problem.limits, strict=True):
            Y = _limited(torch.nn.functional.linear(Y, W, b), *limits)
        return Y.numpy()

    return partial(_with_threads, torch, forward)


@PROGRAMS.add("PyTorch CSR")
def torch_csr(folder: Path) -> Ready:
    """PyTorch, CSR weights x dense activations."""
    import torch

    problem = dense_problems.load(folder)
    weights = [csr(torch, W) for W in problem.weights]
    biases = [torch.from_numpy(b) for b in problem.biases]

    def forward(x: np.ndarray) -> np.ndarray:
        single = len(x) == 1
        Y = torch.from_numpy(x)[0] if single else torch.from_numpy(x).T.contiguous()
        for W, b, limits in zip(weights, biases, problem.limits, strict=True):
            Y = _limited((W @ Y).add_(b if single else b[:, None]), *limits)
        return (Y[None] if single else Y.T).numpy()

    return partial(_with_threads, torch, forward)


def _with_threads(torch: Any, forward: Callable[..., Any], nthreads: int) -> Callable[..., Any]:
    torch.set_num_threads(nthreads)
    return torch.inference_mode()(forward)


def _limited(Z: Any, low: float, high: float) -> Any:
    if low == -inf and high == inf:
        return Z
    return Z.relu_() if high == inf else Z.clamp_(low, high)


def csr(torch: Any, W: np.ndarray) -> Any:
    """Return ``W'`` in PyTorch's CSR format with 32-bit indices."""
    import scipy.sparse as sp

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")
    A = sp.csr_array(W.T)
    arrays = (A.indptr.astype("i4"), A.indices.astype("i4"), A.data)
    return torch.sparse_csr_tensor(*map(torch.from_numpy, arrays), A.shape)


@PROGRAMS.add("ONNX Runtime")
def onnxruntime(folder: Path) -> Ready:
    """ONNX Runtime with dense weights."""
    import onnxruntime

    model = _model(folder)
    return cache(lambda nthreads: onnx_session(onnxruntime, model, nthreads))


def onnx_session(onnxruntime: Any, model: str | bytes, nthreads: int) -> Callable[[Any], Any]:
    """Return a function that runs a model in ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = nthreads, 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    rest = [each if isinstance(each, int) else -1 for each in given.shape[1:]]
    return lambda x: session.run(None, {given.name: x.reshape(len(x), *rest)})[0]


@PROGRAMS.add("DeepSparse")
def deepsparse(folder: Path) -> Ready:
    """DeepSparse, which was made for pruned networks; its last version is of 2024."""
    from deepsparse import Engine

    model = _model(folder)

    @cache
    def engine(inputs: int, nthreads: int) -> Any:
        return Engine(model, batch_size=inputs, num_cores=nthreads)

    return lambda nthreads: lambda x: engine(len(x), nthreads).run([x], val_inp=False)[0]


def openvino(folder: Path, precision: str) -> Ready:
    """OpenVINO with dense weights; bfloat16 is its default on processors that have it."""
    core, model = openvino_core(precision), _model(folder)
    request = cache(lambda *sizes: openvino_request(core, model, precision, *sizes))
    return lambda nthreads: lambda x: request(len(x), nthreads)(x)


PROGRAMS["openvino"] = Program("OpenVINO FP32", openvino, precision="f32")
PROGRAMS["openvino_bf16"] = Program("OpenVINO bfloat16", openvino, "bfloat16", precision="bf16")


def openvino_core(precision: str) -> Any:
    """Return OpenVINO; raise ImportError if the processor lacks instructions for bfloat16."""
    import openvino

    core = openvino.Core()
    if precision == "bf16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ImportError("the processor has no instructions for bfloat16")
    return core


def openvino_request(
    core: Any, file: str | bytes, precision: str, inputs: int, nthreads: int
) -> Callable[[np.ndarray], Any]:
    """Return a function that runs a model in OpenVINO on a number of inputs."""
    model = core.read_model(file)
    model.reshape([inputs, *list(model.input(0).partial_shape)[1:]])
    options = {"INFERENCE_NUM_THREADS": nthreads, "NUM_STREAMS": 1}
    options |= {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    network = core.compile_model(model, "CPU", options)
    used = network.get_property("INFERENCE_PRECISION_HINT").to_string()
    if used != precision:
        raise ValueError(f"OpenVINO computes in {used}, not in {precision}")
    request = network.create_infer_request()
    return lambda x: request.infer([x], share_inputs=True)[0]


@PROGRAMS.add("LIBXSMM spmdm")
def libxsmm(folder: Path) -> Ready:
    """LIBXSMM's product of sparse weights and dense activations, limits and biases by NumPy.

    The environment variable LIBXSMM is the path of a shared library of version 1.17, made from
    Debian's ``libxsmm-dev``: ``gcc -shared -o libxsmm.so -Wl,--whole-archive -lxsmm -lxsmmnoblas
    -Wl,--no-whole-archive -lpthread -ldl -lm``.
    """
    problem, library = dense_problems.load(folder), _libxsmm()

    @cache
    def products(inputs: int, nthreads: int) -> list[Callable[..., None]]:
        return [_spmdm(library, W, inputs, nthreads) for W in problem.weights]

    def forward(nthreads: int, Y: np.ndarray) -> np.ndarray:
        layers = zip(
            products(len(Y), nthreads), problem.weights, problem.biases, problem.limits, strict=True
        )
        for product, W, b, (low, high) in layers:
            Z = np.empty((len(Y), W.shape[1]), np.float32)
            product(Y, Z)
            Z += b
            Y = Z if low == -inf and high == inf else np.clip(Z, low, high, out=Z)
        return Y

    return lambda nthreads: partial(forward, nthreads)


@PROGRAMS.add("LIBXSMM fsspmdm")
def fsspmdm(folder: Path) -> Ready:
    """LIBXSMM's kernel of one matrix."""
    return tiled_programs.fsspmdm(dense_problems.load(folder), _libxsmm())


@PROGRAMS.add("MKL, tiles")
def mkl(folder: Path) -> Ready:
    """MKL's inspector with 32 columns at a time, from C."""
    return tiled_programs.mkl(dense_problems.load(folder))


@PROGRAMS.add("Sparse Register Tiling")
def register_tiling(folder: Path) -> Ready:
    """Sparse Register Tiling, by tiles from C."""
    return tiled_programs.register_tiling(dense_problems.load(folder))


def _libxsmm() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(os.environ["LIBXSMM"])
    except (KeyError, OSError) as err:
        raise ImportError("LIBXSMM is not the path of the shared library") from err


def _spmdm(
    library: ctypes.CDLL, W: np.ndarray, inputs: int, nthreads: int
) -> Callable[[np.ndarray, np.ndarray], None]:
    """Return a function that computes ``Z = Y W`` for contiguous arrays, on threads."""
    A = np.ascontiguousarray(W.T)
    handle, slices = ctypes.create_string_buffer(256), ctypes.c_void_p()
    of = ctypes.byref(handle)
    sizes = A.shape[0], inputs, A.shape[1]
    library.libxsmm_spmdm_init(*sizes, nthreads, of, ctypes.byref(slices))
    N, T = ctypes.c_char(b"N"), ctypes.c_char(b"T")
    one, zero = (ctypes.byref(ctypes.c_float(x)) for x in (1, 0))
    for block in range(library.libxsmm_spmdm_get_num_createSparseSlice_blocks(of)):
        library.libxsmm_spmdm_createSparseSlice_fp32_thread(
            of, N, ctypes.c_void_p(A.ctypes.data), slices, block, 0, 1
        )
    blocks = library.libxsmm_spmdm_get_num_compute_blocks(of)
    pool = ThreadPoolExecutor(nthreads) if nthreads > 1 else None

    def share(Y: np.ndarray, Z: np.ndarray, thread: int) -> None:
        y, z = (ctypes.c_void_p(each.ctypes.data) for each in (Y, Z))
        for block in range(thread, blocks, nthreads):
            library.libxsmm_spmdm_compute_fp32_thread(
                of, N, T, one, slices, y, T, zero, z, block, thread, nthreads
            )

    def run(Y: np.ndarray, Z: np.ndarray) -> None:
        if pool is None:
            share(Y, Z, 0)
        else:
            list(pool.map(partial(share, Y, Z), range(nthreads)))

    return run


def _model(folder: Path) -> str:
    """Return the file of the network in ONNX."""
    file = folder / "net.onnx"
    if not file.exists():
        raise ImportError("onnx, which writes the network, is not installed")
    return str(file)


def timed_calls(
    run: Callable[[Any], Any],
    x: Any,
    at_least: float,
    before: Callable[[], object] = lambda: None,
) -> tuple[dict[str, Any], Any]:
    """Return the seconds of calls, each after a call of `before`, and a result.

    The first call is not timed: see `twice` of `turns.in_turn`.
    """
    taken: list[float] = []
    run(x)
    while True:
        before()
        began = perf_counter()
        Y = run(x)
        taken.append(perf_counter() - began)
        if sum(taken) >= at_least or len(taken) == _MOST_CALLS:
            return {"seconds": median(taken)}, Y


@cache
def _operation(nthreads: int) -> Callable[[], object]:
    """Return an operation of PyTorch, whose threads then wait for the next one."""
    import torch

    torch.set_num_threads(nthreads)
    return partial(torch.randn(200_000).add_, 1)


@cache
def _other_work() -> Callable[[], object]:
    """Return a sum over 32 MB, which takes the place of a network in the caches."""
    return np.ones(1 << 22).sum


def _prepared(name: str, folder_name: str) -> Callable[..., dict[str, Any]]:
    """Return a function that times calls of a program and checks its result."""
    folder = Path(folder_name)
    ready, problem = PROGRAMS.prepared(name, folder), dense_problems.load(folder)

    def run(nthreads: int, inputs: int, at_least: float, torch: int, cold: bool) -> dict[str, Any]:
        before = (_operation(torch),) if torch else (_other_work(),) if cold else ()
        found, Y = timed_calls(ready(nthreads), problem.features[:inputs], at_least, *before)
        Y = Y.to_dense(fill_value=0) if name == "infer" else Y
        truth, known = np.load(folder / f"answer-{inputs}.npy"), problem.labels[:inputs]
        error = inf
        if Y.shape == (inputs, truth.shape[1]):
            error = np.abs(Y[dense_problems.checked(inputs)] - truth).max()
        right = float((Y.argmax(1)[: len(known)] == known).mean()) if len(known) else None
        return found | {"error": float(error / (np.abs(truth).max() or 1.0)), "right": right}

    return run


if __name__ == "__main__":
    serve(_prepared)
