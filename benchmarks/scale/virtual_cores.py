"""Predict speed-ups by number of cores: one thread plays all of them.

    python benchmarks/scale/virtual_cores.py --inputs 30000,60000 --json predicted.json
    python benchmarks/scale/virtual_cores.py --neurons 4096 --inputs 8000 --cores 1,2,16
    python benchmarks/scale/virtual_cores.py --engine sparse --inputs 10000

Each virtual thread has a clock. The one with the least clock takes the next piece, whose time is
added to it. At the end of a phase all clocks are set to the latest one, plus `costs.SHARE` and the
time in which one thread prepares the next phase. This predicts what pieces, phases and serial parts
allow. Python around the call, memory and caches that cores share, clock rates and the waking of
threads are not in it. A piece takes the least of its times in several rounds, since all threads
would wait for a single disturbed piece.

Virtual threads compute one after the other, each all its pieces of a phase, so that its blocks are
in the cache as on a core of its own. Before a window of layers, all layers are read without being
timed: virtual machines take long to read memory again that was not used for some milliseconds, as
the layers are while one thread does the work of many. Then each thread first reads other memory, of
twice the second-level cache, so that it reads the layers from beyond this cache, as each core does.

In the kernels of GraphBLAS, a thread takes the next part of the rows instead.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gbdnn
from gbdnn.gallery import digits, features_from_images
from gbdnn.io.array_files import read_idx
from gbdnn.kernels import costs, fused_run, together
from gbdnn.kernels import parts as graphblas_parts
from gbdnn.kernels.compiled.loading import required
from gbdnn.kernels.compiled.record import constant
from gbdnn.runtime import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report

if TYPE_CHECKING:
    from collections.abc import Iterator

PHASES = "window", "find", "compare", "keep", "share", "extract", "copy"


class Calls:
    """What the calls on virtual threads took.

    Attributes
    ----------
    times : list of ndarray, each of shape (n, 2)
        A phase's number and ns for each piece; after the last one, the number minus that of all
        phases, and ns of the serial part.
    seconds : float
        Of the calls themselves.
    """

    def __init__(self) -> None:
        self.times: list[np.ndarray] = []
        self.seconds = 0.0

    def run(self, record: Any, threads: int, dtype: np.dtype, between: Any) -> int:
        """Compute instead of `gbdnn.kernels.together.in_slices`."""
        began, serial = perf_counter(), np.empty(1, np.int64)
        play = partial(required(dtype).run_virtual, record)
        others = np.ones(machine.machine().caches[1] // 4)  # twice the second-level cache
        # Each core would have the second block of its thread in a cache of its own.
        for worker in record.kept["workers"].all:
            worker.Z = record.kept["workers"].first.Z
        status = play(threads, threads, serial)
        while status == constant("RUNNING"):
            phase, ns = int(record.first.phase), np.empty(record.first.piece_count, np.int64)
            if PHASES[phase] == "window":
                for layer in record.kept["plan"].kept["table"].kept[None]:
                    for array in layer.kept.values():
                        array.reshape(-1)[::8].max()
                for thread in range(threads):
                    others.max()
                    play(thread, thread + 1, ns)
            else:
                play(0, threads, ns)
            status = play(threads, threads, serial)
            pairs = [*((phase, time) for time in ns.tolist()), (phase - len(PHASES), serial[0])]
            self.times.append(np.array(pairs))
        self.seconds += perf_counter() - began
        between()
        return int(status)

    def parts(self, threads: int, function: Any, job: Any) -> None:
        """Compute instead of `gbdnn.kernels.together.together`, one part after the other."""
        began, taken = perf_counter(), []
        if job.kind == "loop_run":
            parts, count = job.kept["parts"], job.first.count
            for n in range(count):
                start = perf_counter()
                job.set(parts=parts.all + n, count=1, slice=1 << 40)
                function(job, together.ALONE)
                taken.append(perf_counter() - start)
            job.set(parts=parts, count=count)
        else:  # the threads share the copies of the answer
            function(job, together.ALONE)
            taken = [(perf_counter() - began) / threads] * threads
        pairs = [(0, int(1e9 * seconds)) for seconds in taken]
        self.times.append(np.array([*pairs, (-len(PHASES), 0)]))
        self.seconds += perf_counter() - began


def played(times: np.ndarray, threads: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the clocks of threads in ns, and ns of pieces, serial parts and waiting by phase."""
    clocks, spent = np.zeros(threads), np.zeros((len(PHASES), 3))
    for phase, ns in times.tolist():
        if phase >= 0:
            clocks[clocks.argmin()] += ns
            spent[phase, 0] += ns
        else:  # counts from the end
            serial = ns + costs.SHARE * (threads > 1)
            spent[phase, 1:] += serial, (clocks.max() - clocks).sum()
            clocks[:] = clocks.max() + serial
    return clocks, spent


@contextmanager
def virtual(threads: int) -> Iterator[Calls]:
    """Let calls on `threads` threads be played by one in a ``with`` block."""
    calls, real, here = Calls(), fused_run.in_slices, machine.machine()
    fused_run.in_slices, machine._current = calls.run, here._replace(cores=threads)
    graphblas_parts.together = calls.parts
    try:
        yield calls
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
        rounds_of: dict[int, list[np.ndarray]] = {n: [] for n in counts}
        outside: dict[int, list[float]] = {n: [] for n in counts}
        for _ in range(rounds):
            for n in counts:
                with virtual(n) as calls:
                    began = perf_counter()
                    gbdnn.infer(net, X, engine=engine, nthreads=n, deduplicate=deduplicate)
                    outside[n].append(perf_counter() - began - calls.seconds)
                if not calls.times:
                    raise SystemExit(f"{size} inputs are too few to be divided into pieces")
                rounds_of[n].append(np.concatenate(calls.times))
        print(f"{size} inputs, deduplicate={deduplicate!r}")
        times: dict[str, float] = {}
        for n in counts:
            clocks, spent = played(np.minimum.reduce(rounds_of[n]), n)
            ms = float(clocks.max()) / 1e6
            parts = ", ".join(
                f"{phase} {pieces / 1e6:.2f} + {serial / 1e6:.3f} + {wait / n / 1e6:.3f}"
                for phase, (pieces, serial, wait) in zip(PHASES, spent, strict=True)
                if pieces
            )
            times[str(n)] = ms
            python = f"{1e3 * min(outside[n]):.2f} ms of Python"
            print(
                f"  {n:2} cores: {ms:8.2f} ms, {times[str(counts[0])] / ms:5.2f} times as fast;"
                f" {python}; ms of pieces, serial and waiting: {parts}"
            )
        times = {n: times[str(counts[0])] / ms for n, ms in times.items()}
        case = {"neurons": neurons, "layers": layers, "inputs": size, "engine": engine}
        found["cells"].append(case | {"deduplicate": bool(deduplicate), "times": times})
    report.finish(json_file, found, [])


if __name__ == "__main__":
    options.run(main)
