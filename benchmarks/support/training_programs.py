"""The programs that `training_steps` compares: steps on minibatches, each in its own process.

Each function takes a problem and returns ``ready(nthreads)``, which returns ``run(steps)``; this
processes the next `steps` minibatches and returns the loss of each and the total seconds. All use
softmax and cross-entropy, SGD with momentum, a fixed pattern, and the same initial weights.
"""

from __future__ import annotations

import sys
import warnings
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import dense_problems
import numpy as np
from dense_programs import _csr
from processes import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dense_problems import DenseProblem

    Run = Callable[[int], tuple[list[float], float]]
    Ready = Callable[[int], Run]

TITLES = {
    "gbdnn": "gbdnn",
    "torch_mask": "PyTorch dense + mask",
    "torch_csr": "PyTorch CSR",
    "sparselab": "sparselab",
    "sparseprop": "SparseProp",
}
BATCH, RATE, MOMENTUM = 128, 0.01, 0.9


def gbdnn(problem: DenseProblem) -> Ready:
    """`gbdnn.train`, with one epoch of the requested steps."""
    import gbdnn
    from gbdnn import training

    options = {
        "epochs": 1, "batch_size": BATCH, "optimizer": training.SGD(RATE, MOMENTUM),
        "schedule": training.Constant(),
    }  # fmt: skip

    def ready(nthreads: int) -> Run:
        run = problem.network()
        at = 0

        def steps(count: int) -> tuple[list[float], float]:
            nonlocal run, at
            inputs = len(problem.features)
            rows = np.arange(at * BATCH, (at + count) * BATCH) % inputs
            at += count
            X, y = problem.features[rows], problem.labels[rows]
            run = gbdnn.train(run, X, y, nthreads=nthreads, **options)
            last = run.history[-1]
            return [last.loss], last.seconds

        return steps

    return ready


def torch_mask(problem: DenseProblem) -> Ready:
    """PyTorch with dense weights; weights off the pattern are set to 0 after each step."""
    import torch

    def ready(nthreads: int) -> Run:
        torch.set_num_threads(nthreads)
        masks = [torch.from_numpy((W.T != 0).astype(np.float32)) for W in problem.weights]
        linears = _linears(torch, problem)
        model = _sequential(torch, linears)
        optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)

        def after() -> None:
            with torch.no_grad():
                for linear, mask in zip(linears, masks, strict=True):
                    linear.weight.mul_(mask)

        return _autograd(torch, problem, model, optimizer, after)

    return ready


def sparselab(problem: DenseProblem) -> Ready:
    """Layers of sparselab with PyTorch's optimizer."""
    import sparselab
    import torch

    def ready(nthreads: int) -> Run:
        torch.set_num_threads(nthreads)
        layers = []
        for W, b in zip(problem.weights, problem.biases, strict=True):
            layer = sparselab.SparseLinear(*W.shape, sparsity=0.5)
            # Replace the layer's random pattern by that of the problem.
            layer._csr = sparselab.PaddedCSR.from_dense(torch.from_numpy(W.T.copy()))
            layer._values = torch.nn.Parameter(torch.from_numpy(np.asarray(layer._csr.values)))
            with torch.no_grad():
                layer.bias.copy_(torch.from_numpy(b))
            layers.append(layer)
        model = _sequential(torch, layers)
        optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
        return _autograd(torch, problem, model, optimizer, lambda: None)

    return ready


def sparseprop(problem: DenseProblem) -> Ready:
    """Layers of SparseProp, converted from PyTorch, with PyTorch's optimizer."""
    import torch
    from sparseprop.modules import SparseLinear

    def ready(nthreads: int) -> Run:
        torch.set_num_threads(nthreads)
        layers = [*map(SparseLinear.from_dense, _linears(torch, problem))]
        model = _sequential(torch, layers, inplace=False)  # the layers return views
        optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
        return _autograd(torch, problem, model, optimizer, lambda: None)

    return ready


def torch_csr(problem: DenseProblem) -> Ready:
    """PyTorch with CSR weights, without autograd; activations are column-wise."""
    import torch

    warnings.filterwarnings("ignore", message=".*Sparse (CSR|invariant).*")

    @torch.inference_mode()
    def make(nthreads: int) -> Run:
        torch.set_num_threads(nthreads)
        layers = [
            _CSRLayer(torch, W, b) for W, b in zip(problem.weights, problem.biases, strict=True)
        ]
        batches = _minibatches(torch, problem)

        @torch.inference_mode()
        def steps(count: int) -> tuple[list[float], float]:
            losses, began = [], perf_counter()
            for X, y in (next(batches) for _ in range(count)):
                Y = [X.T.contiguous()]
                for k, layer in enumerate(layers):
                    Z = (layer.W @ Y[-1]).add_(layer.b[:, None])
                    Y.append(Z.relu_() if k < len(layers) - 1 else Z)
                Z = torch.log_softmax(Y[-1], 0)
                losses.append(-Z.gather(0, y[None]).mean())
                D = Z.exp_()
                D[y, torch.arange(len(y))] -= 1
                D /= len(y)
                for k in reversed(range(len(layers))):
                    below = (layers[k].transposed @ D).mul_(Y[k] > 0) if k else None
                    layers[k].update(D, Y[k])
                    D = below
            return [float(loss) for loss in losses], perf_counter() - began

        return steps

    return make


class _CSRLayer:
    """Weights by rows of the transposed matrix and by rows, with shared values."""

    def __init__(self, torch: Any, W: np.ndarray, b: np.ndarray) -> None:
        import scipy.sparse as sp

        self._torch = torch
        self.W, self.transposed = _csr(torch, W), _csr(torch, np.ascontiguousarray(W.T))
        numbers = sp.csr_array(W.T)
        numbers.data = np.arange(numbers.nnz)
        self._order = torch.from_numpy(sp.csr_array(numbers.T).data.astype(np.int64))
        self.b = torch.from_numpy(b.copy())
        self._moment = torch.zeros_like(self.W.values())
        self._bias_moment = torch.zeros_like(self.b)
        # MKL's sampled product requires 64-bit indices if PyTorch was built with them.
        self._pattern = torch.sparse_csr_tensor(
            self.W.crow_indices(), self.W.col_indices(), torch.zeros_like(self._moment),
            self.W.shape,
        )  # fmt: skip

    def update(self, D: Any, Y: Any) -> None:
        gradient = self._torch.sparse.sampled_addmm(self._pattern, D, Y.T, beta=0).values()
        self._moment.mul_(MOMENTUM).add_(gradient)
        self._bias_moment.mul_(MOMENTUM).add_(D.sum(1))
        values = self.W.values()
        values.sub_(self._moment, alpha=RATE)
        self.b.sub_(self._bias_moment, alpha=RATE)
        self._torch.index_select(values, 0, self._order, out=self.transposed.values())


def _linears(torch: Any, problem: DenseProblem) -> list[Any]:
    found = []
    for W, b in zip(problem.weights, problem.biases, strict=True):
        linear = torch.nn.Linear(*W.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(W.T)))
            linear.bias.copy_(torch.from_numpy(b))
        found.append(linear)
    return found


def _sequential(torch: Any, layers: list[Any], *, inplace: bool = True) -> Any:
    with_relu = [each for layer in layers for each in (layer, torch.nn.ReLU(inplace=inplace))]
    return torch.nn.Sequential(*with_relu[:-1])


def _autograd(
    torch: Any, problem: DenseProblem, model: Any, optimizer: Any, after: Callable[[], None]
) -> Run:
    batches = _minibatches(torch, problem)
    loss_of = torch.nn.functional.cross_entropy

    def steps(count: int) -> tuple[list[float], float]:
        losses, began = [], perf_counter()
        for X, y in (next(batches) for _ in range(count)):
            optimizer.zero_grad()
            loss = loss_of(model(X), y)
            loss.backward()
            optimizer.step()
            after()
            losses.append(loss.detach())
        return [float(loss) for loss in losses], perf_counter() - began

    return steps


def _minibatches(torch: Any, problem: DenseProblem) -> Iterator[tuple[Any, Any]]:
    """Yield consecutive inputs as contiguous arrays, again and again."""
    X, y = torch.from_numpy(problem.features), torch.from_numpy(problem.labels)
    while True:
        for start in range(0, len(X), BATCH):
            yield X[start : start + BATCH], y[start : start + BATCH]


PROGRAMS = {each.__name__: each for each in (gbdnn, torch_mask, torch_csr, sparselab, sparseprop)}


def _prepared(name: str, folder: Path) -> Callable[..., dict[str, Any]]:
    """Return what makes steps, and tells their mean loss and a step's seconds."""
    ready = cache(PROGRAMS[name](dense_problems.load(folder)))

    def run(nthreads: int, steps: int) -> dict[str, Any]:
        losses, seconds = ready(nthreads)(steps)
        return {"loss": float(np.mean(losses)), "seconds": seconds / steps}

    return run


if __name__ == "__main__":
    serve(lambda: _prepared(sys.argv[1], Path(sys.argv[2])))
