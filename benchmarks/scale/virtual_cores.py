"""Predict speed-ups by number of cores: one thread plays all of them.

    python benchmarks/scale/virtual_cores.py --inputs 30000,60000 --json predicted.json
    python benchmarks/scale/virtual_cores.py --neurons 4096 --inputs 8000 --cores 1,2,16
    python benchmarks/scale/virtual_cores.py --engine sparse --inputs 10000

Each virtual thread has a clock. The one with the least clock takes the next piece, whose time is
added to it. At the end of a phase all clocks are set to the latest one, plus 1.25 us, plus the time
in which one thread prepares the next phase. This predicts what pieces, phases and serial parts
allow. Python around the call, memory and caches that cores share, clock rates and the waking of
threads are not in it. The fastest of several rounds is shown.

In the kernels of GraphBLAS, a thread takes the next part of the rows instead.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.gallery import digits, features_from_images
from gbdnn.io.array_files import read_idx
from gbdnn.kernels import fused_run, together
from gbdnn.kernels import parts as graphblas_parts
from gbdnn.kernels.compiled.loading import required
from gbdnn.runtime import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report

if TYPE_CHECKING:
    from collections.abc import Iterator

PHASES = "window", "find", "compare", "keep", "share", "extract", "copy"


class Clocks:
    """Clocks of virtual threads.

    Attributes
    ----------
    clocks : ndarray, shape (threads,)
        ns.
    spent : ndarray, shape (phases, 3)
        ns of pieces, of serial parts, and of waiting, by phase.
    called : float
        Seconds of calls.
    """

    def __init__(self, threads: int) -> None:
        self.clocks, self.spent, self.called = np.zeros(threads), np.zeros((len(PHASES), 3)), 0.0

    def call(self, record: Any, threads: int, dtype: np.dtype, between: Any) -> int:
        """Compute instead of `gbdnn.kernels.together.in_slices`."""
        began = perf_counter()
        # Each core would have the second block of its thread in a cache of its own.
        for worker in record.kept["workers"].all:
            worker.Z = record.kept["workers"].first.Z
        clocks = self.clocks[:threads]
        status = required(dtype).run_virtual(record, clocks, self.spent)
        self.called += perf_counter() - began
        between()
        return int(status)

    def parts(self, threads: int, function: Any, job: Any) -> None:
        """Compute instead of `gbdnn.kernels.together.together`, one part after the other."""
        began, clocks = perf_counter(), self.clocks[:threads]
        if job.kind == "loop_run":
            parts, count = job.kept["parts"], job.first.count
            for n in range(count):
                start = perf_counter()
                job.set(parts=parts.all + n, count=1, slice=1 << 40)
                function(job, together.ALONE)
                clocks[np.argmin(clocks)] += 1e9 * (perf_counter() - start)
            job.set(parts=parts, count=count)
        else:  # the threads share the copies of the answer
            function(job, together.ALONE)
            clocks += 1e9 * (perf_counter() - began) / threads
        self.clocks[:] = clocks.max() + 1250
        self.called += perf_counter() - began


@contextmanager
def virtual(threads: int) -> Iterator[Clocks]:
    """Let calls on `threads` threads be played by one in a ``with`` block."""
    clocks, real, here = Clocks(threads), fused_run.in_slices, machine.machine()
    fused_run.in_slices, machine._current = clocks.call, here._replace(cores=threads)
    graphblas_parts.together = clocks.parts
    try:
        yield clocks
    finally:
        fused_run.in_slices, machine._current = real, here
        graphblas_parts.together = together.together


def main(
    neurons: Annotated[int, typer.Option()] = 1024,
    layers: Annotated[int, typer.Option()] = 120,
    inputs: options.Several = None,
    cores: options.Several = None,
    images: Annotated[Path | None, typer.Option(help="IDX file of images.")] = None,
    rounds: options.Rounds = 5,
    engine: Annotated[str, typer.Option()] = "fused",
    json_file: options.Json = None,
) -> None:
    """Predict times and speed-ups."""
    given = digits() if images is None else read_idx(images)
    net = gbdnn.gallery.radixnet(neurons, layers)
    sizes = options.numbers(inputs, [60_000])
    counts = options.numbers(cores, [1, 2, 4, 8, 16, 32])
    found = report.started(f"{neurons} x {layers}, {engine}", rounds=rounds, cells=[])
    for size, deduplicate in product(sizes, ("auto", False)):
        X = features_from_images(given, neurons, inputs=size)
        best: dict[int, tuple[float, Clocks, float]] = {}
        for _ in range(rounds):
            for n in counts:
                with virtual(n) as clocks:
                    began = perf_counter()
                    gbdnn.infer(net, X, engine=engine, nthreads=n, deduplicate=deduplicate)
                    outside = perf_counter() - began - clocks.called
                ms = float(clocks.clocks.max()) / 1e6
                if n not in best or ms < best[n][0]:
                    best[n] = ms, clocks, 1e3 * outside
        print(f"{size} inputs, deduplicate={deduplicate!r}")
        for n, (ms, clocks, outside) in best.items():
            parts = ", ".join(
                f"{phase} {pieces / 1e6:.2f} + {serial / 1e6:.3f} + {wait / n / 1e6:.3f}"
                for phase, (pieces, serial, wait) in zip(PHASES, clocks.spent, strict=True)
                if pieces
            )
            print(
                f"  {n:2} cores: {ms:8.2f} ms, {best[counts[0]][0] / ms:5.2f} times as fast;"
                f" {outside:.2f} ms of Python; ms of pieces, serial and waiting: {parts}"
            )
        times = {str(n): best[counts[0]][0] / best[n][0] for n in counts}
        case = {"neurons": neurons, "layers": layers, "inputs": size, "engine": engine}
        found["cells"].append(case | {"deduplicate": bool(deduplicate), "times": times})
    report.finish(json_file, found, [])


if __name__ == "__main__":
    options.run(main)
