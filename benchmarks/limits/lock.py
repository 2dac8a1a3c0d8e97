"""How long a layer of a block holds Python's lock, and for how many threads side by side that is.

    python benchmarks/limits/lock.py --json lock.json

A layer of a block that is as small as can be takes the time of its calls alone. Part of it is
inside GraphBLAS, where the lock is released; the rest is the most that a layer can hold it. Threads
side by side can be no more than a layer's whole time over that; beyond, threads go into the
products.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import in_turn, repeated, timed

if TYPE_CHECKING:
    from gbdnn.engine.stats import LayerStats

_SIZES = {1024: 6000, 4096: 2000, 16384: 600, 65536: 200}


def main(
    repeat: Annotated[int, typer.Option(min=1, help="Timed runs of each.")] = 7,
    sizes: Annotated[str, typer.Option(help="Neurons a layer.")] = "1024,4096,16384,65536",
    layers: Annotated[int, typer.Option(min=2, help="Layers of each network.")] = 30,
    json_file: problems.Json = None,
) -> None:
    """Print the time of a layer's calls, and a layer's whole time at every size."""
    chosen = [int(word) for word in sizes.split(",")]
    problem = problems.build(1024, 1, 16)
    found = report.facts(problem, repeat=repeat)
    report.heading(found)
    calls, inside = _calls(repeat), _inside_graphblas(repeat)
    held = calls - inside
    found |= {"calls": calls, "inside_graphblas": inside, "held": held}
    print(
        f"\na layer's calls: {1e6 * calls:.1f} us, of which in GraphBLAS {1e6 * inside:.1f} us;"
        f" the lock is held for {1e6 * held:.1f} us at most"
    )
    rows = []
    for neurons in chosen:
        whole, width = _whole(neurons, layers, _SIZES.get(neurons, 1000), repeat)
        rows.append({"neurons": neurons, "inputs": width, "layer": whole, "threads": whole / held})
    found["sizes"] = rows
    report.table(
        ["neurons", "inputs per block", "us a layer of a block", "threads side by side, at most"],
        [
            (row["neurons"], row["inputs"], f"{1e6 * row['layer']:.0f}", f"{row['threads']:.0f}")
            for row in rows
        ],
    )
    report.write(json_file, found)


def _calls(repeat: int) -> float:
    """Return the seconds of a layer of the smallest block there is."""
    import graphblas as gb

    import gbdnn

    layers, neurons, inputs = 2000, 16, 16
    eye = gb.Matrix.from_coo(range(neurons), range(neurons), np.ones(neurons, np.float32))
    layer = gbdnn.Layer(eye, clip=32)
    net = gbdnn.Network([layer] * layers)
    X = gb.Matrix.from_dense(np.ones((inputs, neurons), np.float32))

    options: dict[str, Any] = {"engine": "full", "compress": False, "nthreads": 1}
    few = layers // 10
    parts = {depth: net[:depth] for depth in (few, layers)}
    turns = in_turn(
        {depth: timed(partial(gbdnn.infer, some, X, **options)) for depth, some in parts.items()},
        repeat,
    )
    return (turns.median(layers) - turns.median(few)) / (layers - few)


def _inside_graphblas(repeat: int) -> float:
    """Return the seconds of the smallest product's call of GraphBLAS itself."""
    import graphblas as gb
    from suitesparse_graphblas import ffi, lib

    from gbdnn.kernels.blocks import Block

    Y, Z = (Block(16, 16, np.dtype(np.float32)) for _ in range(2))
    Y.array.fill(1)
    Z.array.fill(0)
    W = gb.Matrix.from_coo(range(16), range(16), np.ones(16, np.float32))
    plus, plus_times = gb.binary.plus["FP32"].gb_obj, gb.semiring.plus_times["FP32"].gb_obj
    z, y, w, calls = Z.matrix.gb_obj[0], Y.matrix.gb_obj[0], W.gb_obj[0], 2000

    def products() -> None:
        for _ in range(calls):
            lib.GrB_mxm(z, ffi.NULL, plus, plus_times, y, w, ffi.NULL)

    return median(repeated(products, repeat)) / calls


def _whole(neurons: int, layers: int, inputs: int, repeat: int) -> tuple[float, int]:
    """Return the seconds of a layer of a block on one thread, and the inputs of most blocks."""
    import gbdnn

    problem = problems.build(neurons, layers, inputs)
    options: dict[str, Any] = {"engine": "full", "compress": False, "nthreads": 1}
    stats: list[LayerStats] = []
    gbdnn.infer(problem.network, problem.features, callback=stats.append, **options)
    widest = max(each.inputs for each in stats)
    stats.clear()
    for _ in range(repeat):
        gbdnn.infer(problem.network, problem.features, callback=stats.append, **options)
    return median(each.seconds for each in stats if each.inputs == widest), widest


if __name__ == "__main__":
    typer.run(main)
