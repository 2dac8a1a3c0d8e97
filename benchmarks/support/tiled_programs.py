"""Programs of `real_networks` whose products read neurons x inputs, by ``tiles.c``.

Transposing the inputs and the answer, biases and limits are C, and part of the time. A matrix is
prepared for one width of tiles; every thread takes tiles through all layers.
"""

from __future__ import annotations

import ctypes
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hardware
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from dense_problems import DenseProblem

    Ready = Callable[[int], Callable[[np.ndarray], Any]]

_WIDTH = 32  # inputs per tile, the best for MKL and LIBXSMM
_SRT_WIDTH = 128  # the same for Sparse Register Tiling


class _Description(ctypes.Structure):
    """The ``matrix_descr`` of a general matrix."""

    _fields_ = [(name, ctypes.c_int) for name in ("type", "mode", "diagonal")]


def mkl(problem: DenseProblem) -> Ready:
    """MKL's inspector, on MKL found by ``MKL_RT`` or in this environment."""
    found = sorted(Path(sys.prefix, "lib").glob("libmkl_rt.*"))
    path = os.environ.get("MKL_RT") or str(found[-1] if found else "libmkl_rt.so")
    os.environ["MKL_THREADING_LAYER"] = "SEQUENTIAL"
    library = _loaded(path, "MKL")

    def prepared(W: np.ndarray) -> ctypes.c_void_p:
        matrix, (pointers, columns, values) = ctypes.c_void_p(), _csr(W)
        library.mkl_sparse_s_create_csr(
            ctypes.byref(matrix), 0, W.shape[1], W.shape[0],
            _at(pointers), _at(pointers[1:]), _at(columns), _at(values),
        )  # fmt: skip
        library.mkl_sparse_set_mm_hint(matrix, 10, _Description(20, 40, 50), 101, _WIDTH, 10_000)
        library.mkl_sparse_optimize(matrix)
        return matrix

    return _program(problem, prepared, library.mkl_sparse_s_mm, is_mkl=True)


def fsspmdm(problem: DenseProblem, library: ctypes.CDLL) -> Ready:
    """LIBXSMM's kernel of one matrix, which needs few distinct weights or a small matrix."""
    create = library.libxsmm_sfsspmdm_create
    create.restype = ctypes.c_void_p

    def prepared(W: np.ndarray) -> ctypes.c_void_p:
        A, (n, m) = np.ascontiguousarray(W.T), W.shape
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        matrix = create(m, _WIDTH, n, n, _WIDTH, _WIDTH, one, zero, 0, _at(A))
        if not matrix:
            raise ImportError(f"LIBXSMM has no kernel for a layer of {n} x {m}")
        return ctypes.c_void_p(matrix)

    return _program(problem, prepared, library.libxsmm_sfsspmdm_execute)


def register_tiling(problem: DenseProblem) -> Ready:
    """Sparse Register Tiling (PLDI 2023); ``SRT`` is a library with `tiles_create`, `tiles_run`."""
    library = _loaded(os.environ.get("SRT", ""), "Sparse Register Tiling")
    library.tiles_create.restype = ctypes.c_void_p

    def prepared(W: np.ndarray) -> ctypes.c_void_p:
        arrays = map(_at, _csr(W))
        return ctypes.c_void_p(library.tiles_create(W.shape[1], W.shape[0], *arrays, _SRT_WIDTH))

    return _program(problem, prepared, library.tiles_run, width=_SRT_WIDTH)


def _loaded(path: str, name: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path or "none")
    except OSError as err:
        raise ImportError(f"{name} has not been found: {err}") from err


def _csr(W: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ``W'`` by rows, with 32-bit indices."""
    import scipy.sparse as sp

    A = sp.csr_array(W.T)
    arrays = A.indptr.astype("i4"), A.indices.astype("i4"), A.data
    _KEPT.append(arrays)
    return arrays


_KEPT: list[Any] = []  # what compiled code reads


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _program(
    problem: DenseProblem,
    prepared: Callable[[np.ndarray], ctypes.c_void_p],
    product: Any,
    *,
    width: int = _WIDTH,
    is_mkl: bool = False,
) -> Ready:
    """Return the program of a library's product."""
    _KEPT.append(problem)
    tiles, count = hardware.compiled("tiles.c").tiles, len(problem.weights)
    matrices = (ctypes.c_void_p * count)(*(prepared(W) for W in problem.weights))
    biases = (ctypes.c_void_p * count)(*(b.ctypes.data for b in problem.biases))
    sizes = np.array([problem.weights[0].shape[0], *(W.shape[1] for W in problem.weights)])
    limits = np.array(problem.limits, np.float32)
    products = (product, None) if is_mkl else (None, product)

    def run(pool: ThreadPoolExecutor, nthreads: int, X: np.ndarray) -> np.ndarray:
        answer, following = np.empty((len(X), sizes[-1]), np.float32), np.zeros(1, np.int64)
        given = *map(_at, (limits, X, answer)), *map(ctypes.c_int64, (len(X), width))

        def work(number: int) -> None:
            blocks = map(_at, buffers[number])
            tiles(
                *products, ctypes.c_int64(count), matrices, _at(sizes), biases, *given,
                _at(following), *blocks,
            )  # fmt: skip

        if nthreads == 1:
            work(0)
        else:
            list(pool.map(work, range(nthreads)))
        return answer

    def ready(nthreads: int) -> Callable[[np.ndarray], np.ndarray]:
        while len(buffers) < nthreads:
            buffers.append(hardware.aligned(8 * width * sizes.max()).reshape(2, -1))
        return partial(run, ThreadPoolExecutor(nthreads), nthreads)

    buffers: list[np.ndarray] = []
    return ready
