"""Compare training steps in PyTorch: sparse layers of gbdnn, CSR tensors, sparselab, dense layers.

    python benchmarks/comparison/sparse_linear.py --json sparse_linear.json

A step is forward, cross-entropy, backward and a step of Adam (fused where PyTorch is the owner), of
a network with ReLU. Programs run in one process, interleaved, on `--nthreads` threads; the table
shows the milliseconds of a processor, which other programs disturb less than those of a clock. The
sparse programs have the same weights, and their losses are compared with those of dense layers.
With several threads, set ``OMP_WAIT_POLICY=passive``; waiting threads of OpenMP use a processor.
"""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from turns import checked, in_turn

if TYPE_CHECKING:
    from collections.abc import Callable

NETWORKS = {"784-1024-1024-10": (0.1, 0.05, 0.01), "4096-4096": (0.1, 0.05, 0.01)}
BATCHES = 32, 128, 1024
TOLERANCE = 1e-3


def main(
    nthreads: options.Count = 1,
    rounds: options.Rounds = 9,
    seed: options.Seed = 0,
    quick: options.Quick = False,
    json_file: options.Json = None,
) -> None:
    """Compare training steps of sparse layers in PyTorch."""
    import torch

    torch.set_num_threads(nthreads)
    networks, batches = NETWORKS, BATCHES
    if quick:
        networks, batches, rounds = {"30-40-10": (0.2,)}, (16,), 2
    found = report.started("a training step in PyTorch, FP32", rounds=rounds, seed=seed, cells=[])
    for name, densities in networks.items():
        for density in densities:
            for batch in batches:
                torch.manual_seed(seed)
                found["cells"].append(_cell(name, density, batch, nthreads, rounds))
                print(f"{name}, {density:.0%}, {batch} inputs: done", flush=True)
    rows = [
        {
            "network": f"{cell['network']} at {cell['density']:.0%}",
            "inputs": cell["inputs"],
            **{f"{key}, ms": 1e3 * seconds for key, seconds in cell["median"].items()},
            "losses": "right" if cell["check"] == "PASSED" else "WRONG",
        }
        for cell in found["cells"]
    ]
    report.table(rows)
    report.finish(json_file, found, found["cells"])


def _cell(name: str, density: float, batch: int, nthreads: int, rounds: int) -> dict[str, Any]:
    import torch

    from gbdnn.torch import SparseLinear, SparseSequential

    sizes = [*map(int, name.split("-"))]
    layers = [SparseLinear(n, m, density=density) for n, m in pairwise(sizes)]
    x, y = torch.randn(batch, sizes[0]), torch.randint(sizes[-1], (batch,))
    programs = {
        "SparseSequential": _stepper(layers, x, y, lambda layer: layer, SparseSequential),
        "PyTorch CSR": _stepper(layers, x, y, _csr),
        "dense + mask": _stepper(layers, x, y, lambda layer: layer.to_dense(), masked=True),
    }
    if importlib.util.find_spec("sparselab"):
        programs["sparselab"] = _stepper(layers, x, y, _sparselab)
    losses = {key: step()["loss"] for key, step in programs.items()}
    programs["gbdnn.train"] = partial(_trained, layers, x.numpy(), y.numpy(), nthreads)
    turns = in_turn(programs, rounds, warm=2)
    truth = losses["dense + mask"]
    right = all(abs(loss - truth) <= TOLERANCE * truth for loss in losses.values())
    return {
        "network": name, "density": density, "inputs": batch, "nthreads": nthreads,
        "seconds": {key: turns.seconds(key) for key in programs},
        "median": {key: turns.median(key) for key in programs},
        "times": {
            key: median(turns.ratios(key, "SparseSequential"))
            for key in programs if key != "SparseSequential"
        },
        "loss": losses, "check": checked(right),
    }  # fmt: skip


def _stepper(
    layers: list[Any], x: Any, y: Any, convert: Callable[[Any], Any], kind: Any = None,
    *, masked: bool = False,
) -> Callable[[], dict[str, Any]]:  # fmt: skip
    """Return a function that makes a training step."""
    import copy

    import torch
    from torch import nn

    masks = [layer.weight.detach().to_dense() != 0 for layer in layers] if masked else []
    converted = [convert(copy.deepcopy(layer)) for layer in layers]
    parts = [part for layer in converted for part in (layer, nn.ReLU())]
    model = (kind or nn.Sequential)(*parts[:-1])
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def step() -> dict[str, Any]:
        began = process_time()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for layer, mask in zip(converted, masks, strict=False):
                layer.weight.mul_(mask)
        return {"seconds": process_time() - began, "loss": loss.item()}

    return step


def _csr(layer: Any) -> Any:
    """Return a layer of CSR tensors with a gradient on the pattern, written by hand."""
    import torch
    from torch import nn

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, values: Any, crow: Any, col: Any, shape: Any) -> Any:
            W = torch.sparse_csr_tensor(crow, col, values, shape, check_invariants=False)
            ctx.save_for_backward(x)
            ctx.W = W
            return (W @ x.T).T

        @staticmethod
        def backward(ctx: Any, d: Any) -> Any:
            (x,) = ctx.saved_tensors
            zeros = torch.sparse_csr_tensor(
                ctx.W.crow_indices(), ctx.W.col_indices(), torch.zeros_like(ctx.W.values()),
                ctx.W.shape, check_invariants=False,
            )  # fmt: skip
            dw = torch.sparse.sampled_addmm(zeros, d.T.contiguous(), x).values()
            dx = (ctx.W.transpose(0, 1) @ d.T).T if ctx.needs_input_grad[0] else None
            return dx, dw, None, None, None

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.values, self.bias = layer.values, layer.bias
            self.crow, self.col = layer.crow_indices.int(), layer.col_indices.int()
            self.shape = layer.out_features, layer.in_features

        def forward(self, x: Any) -> Any:
            return Product.apply(x, self.values, self.crow, self.col, self.shape) + self.bias

    return Layer()


def _sparselab(layer: Any) -> Any:
    """Return a layer of sparselab."""
    import sparselab
    import torch

    made = sparselab.SparseLinear(layer.in_features, layer.out_features, sparsity=0.5)
    made._csr = sparselab.PaddedCSR.from_dense(layer.weight.detach().to_dense())
    made._values = torch.nn.Parameter(torch.from_numpy(np.asarray(made._csr.values)))
    with torch.no_grad():
        made.bias.copy_(layer.bias)
    return made


def _trained(layers: list[Any], X: Any, y: Any, nthreads: int, steps: int = 8) -> dict[str, Any]:
    """Return the time of a step of `gbdnn.train`, of two runs that differ by `steps`."""
    import gbdnn
    from gbdnn import training

    network = gbdnn.Network([
        gbdnn.Layer(
            layer.to_dense().weight.detach().numpy().T.copy(), layer.bias.detach().numpy(),
            activation="relu" if layer is not layers[-1] else "identity",
        )
        for layer in layers
    ])  # fmt: skip
    taken = []
    for epochs in (1, 1 + steps):
        began = process_time()
        gbdnn.train(
            network, X, y, epochs=epochs, batch_size=len(X), optimizer=training.Adam(),
            schedule=training.Constant(), nthreads=nthreads,
        )  # fmt: skip
        taken.append(process_time() - began)
    return {"seconds": max(taken[1] - taken[0], 1e-9) / steps}


if __name__ == "__main__":
    options.run(main)
