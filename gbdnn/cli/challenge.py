"""``gbdnn challenge``: run a problem of the Graph Challenge and check its categories."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import gbdnn
from gbdnn import challenge as problems
from gbdnn.cli import options, outputs
from gbdnn.cli import workers as pools
from gbdnn.cli.terminal import Bar, kernels, lines_of, say
from gbdnn.errors import ArgumentError
from gbdnn.io.files import is_standard_output, require_writable, whole_file
from gbdnn.viz.figures import new_figure, require_plottable, save_figure

if TYPE_CHECKING:
    from collections.abc import Callable

_FEW = 10  # ids


def challenge(
    data: Annotated[
        Path | None,
        Option(metavar="DIR", help="Folder of official files (default: a generated network)."),
    ] = None,
    neurons: Annotated[int, Option(help="Neurons per layer: 1024, 4096, 16384 or 65536.")] = 1024,
    layers: Annotated[
        int, Option(min=1, help="Number of layers; 120, 480 or 1920 in the challenge.")
    ] = 120,
    images: Annotated[
        Path | None, Option(metavar="PATH", help="IDX file, or folder of MNIST (default: digits).")
    ] = None,
    inputs: options.Inputs = None,
    seed: Annotated[
        int | None, Option(min=0, help="Seed of the generated network (default: 0).")
    ] = None,
    engine: options.Engine = "auto",
    memory: options.Memory = "512MiB",
    nthreads: options.ThreadCounts = None,
    deduplicate: Annotated[
        bool, Option("--deduplicate", help="Compute equal inputs once: an effective edge rate.")
    ] = False,
    repeat: Annotated[
        int, Option(min=0, help="Runs after the first; their median is reported.")
    ] = 3,
    check: Annotated[bool, Option(help="Compare the categories with the expected ones.")] = True,
    json_file: Annotated[
        Path | None,
        Option("--json", metavar="FILE", callback=outputs.named, help="Write the outcome as JSON."),
    ] = None,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE", help="Plot another run, or speed-up by threads: .png, .svg, .pdf."),
    ] = None,
    workers: pools.Workers = None,
    scheduler: pools.Scheduler = None,
    mpi: pools.Mpi = False,
) -> int:
    """Run a Graph Challenge problem and check its categories.

    By default, runs a generated network of 1024 neurons and 120 layers on scikit-learn's 1,797
    digits and compares with SciPy in FP64. With --json -, standard output is JSON.
    Workers read the network from a temporary folder (in TMPDIR) before timing starts.

    \b
    Examples:
      gbdnn challenge
      gbdnn challenge --neurons 4096 --layers 480 --json outcome.json
      gbdnn challenge --data DIR --inputs 500
      gbdnn challenge --inputs 60000 --workers 2
      gbdnn challenge --inputs 60000 --nthreads 1,2,4 --plot threads.svg
    """  # noqa: D301 -- \b keeps the lines of the examples
    if data is not None and seed is not None:
        raise ArgumentError("--data and --seed are mutually exclusive")
    counts = nthreads or [None]
    several = len(counts) > 1
    options.exclusive(workers=workers, scheduler=scheduler, mpi=mpi)
    if several and (workers or scheduler or mpi):
        raise ArgumentError("several numbers of threads cannot be combined with workers")
    if json_file is not None:
        require_writable(json_file)
    if plot is not None:
        require_plottable(plot)
    with Bar() as bar, pools.executor(workers, scheduler, mpi) as executor:
        bar.begin("reading" if data else "generating")
        if data is None:
            problem = problems.generated(
                neurons, layers, images=images, inputs=inputs, seed=seed or 0
            )
        else:
            problem = problems.official(
                data, neurons, layers, images=images, inputs=inputs, truth=check, progress=bar.show
            )
        with bar.inference():
            run = partial(
                problems.run, problem, engine=engine, memory=memory, deduplicate=deduplicate,
                check=False, executor=executor,
            )  # fmt: skip
            if several:
                sweep = _sweep(run, counts, repeat)
            else:
                sweep = [run(nthreads=counts[0], repeat=repeat, record=plot is not None)]
        outcome = sweep[-1]
        if several:
            say(lines_of(_speed_ups(sweep)), json_file)
        if plot is not None:
            _draw_sweep(sweep, plot) if several else _draw(outcome, plot)
        if json_file is not None and not is_standard_output(json_file):
            _write(outcome, json_file)  # before the check, which may take longer than the run
        say(lines_of(_facts(outcome)), json_file)
        if check:
            bar.begin("checking")
            outcome = outcome.checked(bar.show)
        if json_file is not None:
            _write(outcome, json_file)
    say(lines_of({"check": _check(outcome)}), json_file)
    return int(outcome.check == "FAILED")


def _sweep(
    run: Callable[..., problems.Outcome], counts: list[int | None], repeat: int
) -> list[problems.Outcome]:
    """Return an outcome for each number of threads; rounds are interleaved."""
    first = [run(nthreads=n, repeat=0) for n in counts]
    seconds: list[list[float]] = [[] for _ in counts]
    for _ in range(repeat):
        for n, taken in zip(counts, seconds, strict=True):
            taken.append(run(nthreads=n, repeat=0).first_seconds)
    pairs = zip(first, seconds, strict=True)
    return [replace(each, seconds=taken or each.seconds) for each, taken in pairs]


def _speed_ups(sweep: list[problems.Outcome]) -> dict[str, str]:
    """Return the median seconds and the speed-up by number of threads."""
    first = sweep[0].seconds_median
    return {
        f"{each.nthreads} thread{'s'[: each.nthreads > 1]}": (
            f"{each.seconds_median:.3f} s, speed-up {first / each.seconds_median:.2f}"
        )
        for each in sweep
    }


def _draw_sweep(sweep: list[problems.Outcome], path: Path) -> None:
    threads = [each.nthreads for each in sweep]
    rounds = [
        [one / n for one, n in zip(sweep[0].seconds, each.seconds, strict=True)] for each in sweep
    ]
    middle = [median(ratios) for ratios in rounds]
    below = [m - min(ratios) for m, ratios in zip(middle, rounds, strict=True)]
    above = [max(ratios) - m for m, ratios in zip(middle, rounds, strict=True)]
    figure = new_figure()
    ax = figure.subplots()
    ax.plot(threads, [n / threads[0] for n in threads], ":", color="0.5", label="ideal")
    ax.errorbar(threads, middle, [below, above], marker="o", capsize=3, label="median and range")
    ax.set(xlabel="threads", xticks=threads, ylim=(0, None), title=sweep[0].problem.name)
    ax.set_ylabel(f"speed-up over {threads[0]} thread{'s'[: threads[0] > 1]}")
    ax.grid(axis="y", color="0.9")
    ax.legend()
    save_figure(figure, path)


def _write(outcome: problems.Outcome, path: Path) -> None:
    with whole_file(path) as file:
        file.write((json.dumps(outcome.as_json(), indent=2) + "\n").encode())


def _draw(outcome: problems.Outcome, path: Path) -> None:
    sizes = [layer.ncols for layer in outcome.problem.network.infos]
    figure = gbdnn.viz.run_figure(
        outcome.records or [], neurons=sizes, layers=len(sizes), title=outcome.problem.name
    )
    save_figure(figure, path)


def _check(outcome: problems.Outcome) -> str:
    if outcome.truth is None:
        return outcome.check
    count = len(outcome.borderline)
    but = f", except {count} inputs that rounding decides" if count else ""
    words = f"{outcome.check} (against {outcome.checked_against}{but})"
    for what in ("missing", "unexpected"):
        ids = getattr(outcome, what)
        if len(ids):
            first = ", ".join(map(str, ids[:_FEW] + 1)) + (", ..." if len(ids) > _FEW else "")
            words += f"; {len(ids)} {what} (ids from 1): {first}"
    return f"{words}; {outcome.check_seconds:.1f} s"


def _facts(outcome: problems.Outcome) -> dict[str, Any]:
    problem, machine, busy = outcome.problem, outcome.machine, outcome.balance
    edges = problem.network.edges
    rate = f"{outcome.edge_rate:.4g} edges/s"
    if outcome.deduplicate:
        rate += " EFFECTIVE: equal inputs computed once"
    if outcome.processed is not None:
        rate += f"; {outcome.processed:.4g} edges processed"
    facts = {
        "problem": problem.name,
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB",
        "versions": ", ".join(f"{name} {each}" for name, each in outcome.versions.items()),
        "threads": outcome.nthreads,
        "engine": f"{outcome.engine}, kernels {kernels(outcome.kernels)}",
        "edges": f"{edges:,} (x {problem.inputs:,} inputs = {edges * problem.inputs:.4g})",
        "first call": f"{outcome.first_seconds:.3f} s, includes preparation",
        "seconds": f"{outcome.seconds_median:.3f}, median of {len(outcome.seconds)}",
        "edge rate": rate,
        "categories": f"{len(outcome.categories):,}",
    }
    if busy is not None:
        facts["workers"] = (
            f"{len(busy.workers)}, busy for {busy.seconds.min:.3f} to {busy.seconds.max:.3f} s,"
            f" imbalance {busy.seconds.imbalance:.2f}"
        )
    return facts
