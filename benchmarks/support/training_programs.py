"""The programs that `training_steps` compares: steps on minibatches, each in its own process.

Each function takes a problem and returns ``ready(nthreads, batch)``, which returns ``run(steps)``;
this processes the next `steps` minibatches and returns the loss of each and the total seconds. All
use softmax and cross-entropy, SGD with momentum, a fixed pattern, and the same initial weights.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import dense_problems
import numpy as np
from dense_programs import csr
from processes import Programs, serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dense_problems import DenseProblem

    Run = Callable[[int], tuple[list[float], float]]
    Ready = Callable[[int, int], Run]

PROGRAMS = Programs(__file__)
RATE, MOMENTUM = 0.01, 0.9


@PROGRAMS.add("gbdnn")
def gbdnn(problem: DenseProblem) -> Ready:
    """`gbdnn.train`, with one epoch of the requested steps."""
    import gbdnn
    from gbdnn import training

    options = {
        "epochs": 1, "optimizer": training.SGD(RATE, MOMENTUM), "schedule": training.Constant(),
    }  # fmt: skip

    def ready(nthreads: int, batch: int) -> Run:
        run = problem.network()
        at = 0

        def steps(count: int) -> tuple[list[float], float]:
            nonlocal run, at
            inputs = len(problem.features)
            rows = np.arange(at * batch, (at + count) * batch) % inputs
            at += count
            X, y = problem.features[rows], problem.labels[rows]
            run = gbdnn.train(run, X, y, batch_size=batch, nthreads=nthreads, **options)
            last = run.history[-1]
            return [last.loss], last.seconds

        return steps

    return ready


@PROGRAMS.add("PyTorch dense + mask")
def torch_mask(problem: DenseProblem) -> Ready:
    """PyTorch with dense weights; weights off the pattern are set to 0 after each step."""
    import torch

    masks = [torch.from_numpy((W.T != 0).astype(np.float32)) for W in problem.weights]

    def after(linears: list[Any]) -> None:
        with torch.no_grad():
            for linear, mask in zip(linears, masks, strict=True):
                linear.weight.mul_(mask)

    return partial(_autograd, torch, problem, lambda linear: linear, after)


@PROGRAMS.add("SparseSequential")
def sparse_sequential(problem: DenseProblem) -> Ready:
    """`gbdnn.torch.SparseSequential`, with PyTorch's optimizer."""
    import torch

    from gbdnn.torch import SparseLinear, SparseSequential

    return partial(_autograd, torch, problem, SparseLinear.from_dense, sequential=SparseSequential)


@PROGRAMS.add("sparselab")
def sparselab(problem: DenseProblem) -> Ready:
    """Layers of sparselab with PyTorch's optimizer."""
    import sparselab
    import torch

    def converted(linear: Any) -> Any:
        layer = sparselab.SparseLinear(linear.in_features, linear.out_features, sparsity=0.5)
        # Replace the layer's random pattern by that of the problem.
        layer._csr = sparselab.PaddedCSR.from_dense(linear.weight.detach().clone())
        layer._values = torch.nn.Parameter(torch.from_numpy(np.asarray(layer._csr.values)))
        with torch.no_grad():
            layer.bias.copy_(linear.bias)
        return layer

    return partial(_autograd, torch, problem, converted)


@PROGRAMS.add("SparseProp")
def sparseprop(problem: DenseProblem) -> Ready:
    """Layers of SparseProp, converted from PyTorch, with PyTorch's optimizer."""
    import torch
    from sparseprop.modules import SparseLinear

    # The layers return views.
    return partial(_autograd, torch, problem, SparseLinear.from_dense, inplace=False)


@PROGRAMS.add("PyTorch CSR, autograd")
def torch_autograd(problem: DenseProblem) -> Ready:
    """PyTorch with CSR weights, in an operation of autograd with a gradient on the pattern."""
    import torch

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, values: Any, W: Any) -> Any:
            ctx.save_for_backward(x)
            ctx.W = torch.sparse_csr_tensor(
                W.crow_indices(), W.col_indices(), values, W.shape, check_invariants=False
            )
            return (ctx.W @ x.T).T

        @staticmethod
        def backward(ctx: Any, D: Any) -> Any:
            zeros = torch.sparse_csr_tensor(
                ctx.W.crow_indices(), ctx.W.col_indices(), torch.zeros_like(ctx.W.values()),
                ctx.W.shape, check_invariants=False,
            )  # fmt: skip
            found = torch.sparse.sampled_addmm(zeros, D.T.contiguous(), *ctx.saved_tensors)
            dx = (ctx.W.transpose(0, 1) @ D.T).T if ctx.needs_input_grad[0] else None
            return dx, found.values(), None

    class Layer(torch.nn.Module):
        def __init__(self, linear: Any) -> None:
            super().__init__()
            self.W, self.bias = csr(torch, linear.weight.detach().numpy().T), linear.bias
            self.values = torch.nn.Parameter(self.W.values())

        def forward(self, x: Any) -> Any:
            return Product.apply(x, self.values, self.W) + self.bias

    return partial(_autograd, torch, problem, Layer)


@PROGRAMS.add("PyTorch CSR")
def torch_csr(problem: DenseProblem) -> Ready:
    """PyTorch with CSR weights, without autograd; activations are column-wise."""
    import torch

    @torch.inference_mode()
    def ready(nthreads: int, batch: int) -> Run:
        torch.set_num_threads(nthreads)
        layers = [
            _CSRLayer(torch, W, b) for W, b in zip(problem.weights, problem.biases, strict=True)
        ]
        batches = _minibatches(torch, problem, batch)

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

    return ready


class _CSRLayer:
    """Weights by rows of the transposed matrix and by rows, with shared values."""

    def __init__(self, torch: Any, W: np.ndarray, b: np.ndarray) -> None:
        import scipy.sparse as sp

        self._torch = torch
        self.W, self.transposed = csr(torch, W), csr(torch, np.ascontiguousarray(W.T))
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


def _autograd(
    torch: Any,
    problem: DenseProblem,
    converted: Callable[[Any], Any],
    after: Callable[[list[Any]], None] = lambda _: None,
    *,
    nthreads: int,
    batch: int,
    inplace: bool = True,
    sequential: Any = None,
) -> Run:
    """Return steps of PyTorch on layers that are made from its dense ones; `after` ends a step."""
    torch.set_num_threads(nthreads)
    layers, modules = [], []
    for W, b in zip(problem.weights, problem.biases, strict=True):
        linear = torch.nn.Linear(*W.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.ascontiguousarray(W.T)))
            linear.bias.copy_(torch.from_numpy(b))
        layers.append(converted(linear))
        modules += [layers[-1], torch.nn.ReLU(inplace=inplace)]
    model = (sequential or torch.nn.Sequential)(*modules[:-1])
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, fused=True)
    batches = _minibatches(torch, problem, batch)

    def steps(count: int) -> tuple[list[float], float]:
        losses, began = [], perf_counter()
        for X, y in (next(batches) for _ in range(count)):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(X), y)
            loss.backward()
            optimizer.step()
            after(layers)
            losses.append(loss.detach())
        return [float(loss) for loss in losses], perf_counter() - began

    return steps


def _minibatches(torch: Any, problem: DenseProblem, batch: int) -> Iterator[tuple[Any, Any]]:
    """Yield consecutive inputs as contiguous arrays, again and again."""
    X, y = torch.from_numpy(problem.features), torch.from_numpy(problem.labels)
    while True:
        for start in range(0, len(X), batch):
            yield X[start : start + batch], y[start : start + batch]


def _prepared(name: str, folder: str) -> Callable[..., dict[str, Any]]:
    """Return a function that makes steps, and returns their mean loss and a step's seconds."""
    ready = cache(PROGRAMS.prepared(name, dense_problems.load(Path(folder))))

    def run(nthreads: int, batch: int, steps: int) -> dict[str, Any]:
        losses, seconds = ready(nthreads=nthreads, batch=batch)(steps)
        return {"loss": float(np.mean(losses)), "seconds": seconds / steps}

    return run


if __name__ == "__main__":
    serve(_prepared)
