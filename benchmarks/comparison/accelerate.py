"""Pruned modules by `gbdnn.torch.accelerate`, beside PyTorch's dense ones.

    python benchmarks/comparison/accelerate.py --zeros 0.9 --tokens 1 --tokens 128 --nthreads 2

A feed-forward part of a transformer (768-3072-768, GELU), an encoder of six such layers with
attention, and a classifier (784-512-512-10), with weights of which a share is 0 at random. Both are
called in turn in one process, with as many threads; medians, 99th percentiles, the pairs in which
gbdnn was not slower, and the largest difference of the answers.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Annotated

import torch
import typer
from torch import nn

import gbdnn.torch

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from turns import in_turn, timed


class FeedForward(nn.Module):
    """Of a transformer: wide, GELU, narrow."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the answer."""
        return self.down(self.act(self.up(x)))


def models() -> dict[str, tuple[nn.Module, int]]:
    """Return each model, and its features."""
    layer = nn.TransformerEncoderLayer(768, 12, 3072, activation="gelu", batch_first=True)
    classifier = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    return {
        "feed-forward": (FeedForward(), 768),
        "encoder of 6": (nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), 768),
        "classifier": (classifier, 784),
    }


def pruned(model: nn.Module, zeros: float) -> nn.Module:
    """Return a model with that share of its linear layers' weights 0, at random."""
    with torch.no_grad():
        for part in model.modules():
            if isinstance(part, nn.Linear):
                part.weight *= torch.rand_like(part.weight) >= zeros
    return model.eval()


def main(
    zeros: Annotated[list[float] | None, typer.Option(help="Share of zeros.")] = None,
    tokens: Annotated[list[int] | None, typer.Option(help="Inputs of a call.")] = None,
    nthreads: Annotated[int, typer.Option(min=1)] = 2,
    rounds: Annotated[int, typer.Option(min=4)] = 40,
    model: Annotated[str, typer.Option(help="A part of the name.")] = "",
) -> None:
    """Time both in turn."""
    torch.set_num_threads(nthreads)
    print(f"PyTorch {torch.__version__}, {nthreads} threads; ms")
    print("model         zeros  tokens  gbdnn   p99     PyTorch  p99     times  pairs  difference")
    for share in zeros or [0.8, 0.9, 0.95]:
        torch.manual_seed(0)
        for name, (each, features) in models().items():
            if model not in name:
                continue
            dense = pruned(each, share)
            fast = gbdnn.torch.accelerate(dense)
            for count in tokens or [1, 32, 128]:
                x = torch.randn(count, features)
                x = x[None] if "encoder" in name else x
                _row(f"{name:13} {share:<6} {count:<7}", fast, dense, x, rounds)


def _row(title: str, fast: nn.Module, dense: nn.Module, x: torch.Tensor, rounds: int) -> None:
    with torch.inference_mode():
        found, expected = fast(x), dense(x)
        calls = {each: timed(partial(each, x)) for each in (fast, dense)}
        turns = in_turn(calls, rounds)
    times = [[1e3 * seconds for seconds in turns.seconds(each)] for each in calls]
    ours, theirs = map(median, times)
    p99 = [quantiles(each, n=100)[98] for each in times]
    won = sum(a <= b for a, b in zip(*times, strict=True))
    difference = float((found - expected).abs().max() / expected.abs().max())
    print(
        f"{title} {ours:<7.3f} {p99[0]:<7.3f} {theirs:<8.3f} {p99[1]:<7.3f} {theirs / ours:<6.2f}"
        f" {won}/{rounds}  {difference:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    typer.run(main)
