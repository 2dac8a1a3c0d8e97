"""``gbdnn challenge``: run a problem of the Graph Challenge and check its categories."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

from typer import Option

import gbdnn
from gbdnn import challenge as problems
from gbdnn.cli import options
from gbdnn.cli import workers as pools
from gbdnn.cli.bars import Bars
from gbdnn.cli.terminal import computed_in, counted, fact_lines, say
from gbdnn.errors import ArgumentError
from gbdnn.io.files import require_writable, whole_file
from gbdnn.viz.figures import require_plottable, save_figure

_FAILED = 1


def challenge(
    data: Annotated[
        Path | None,
        Option(metavar="DIR", help="Folder of official files (default: a generated network)."),
    ] = None,
    neurons: Annotated[int, Option(help="1024, 4096, 16384 or 65536.")] = 1024,
    layers: Annotated[int, Option(min=1, help="120, 480, 1920 or any other number.")] = 120,
    images: Annotated[
        Path | None,
        Option(
            metavar="PATH",
            help="IDX file, or folder with MNIST's training images (default: digits).",
        ),
    ] = None,
    inputs: Annotated[
        int | None,
        Option(min=1, help="Number of inputs; beyond the images, shifted copies."),
    ] = None,
    seed: Annotated[
        int | None, Option(min=0, help="Seed of the generated network (default: 0).")
    ] = None,
    nthreads: options.NThreads = None,
    engine: options.Engine = "auto",
    compress: Annotated[
        bool,
        Option(
            "--compress",
            help="Compute equal inputs once (default: no: the edge rate would be an effective"
            " one, of edges that nobody multiplied).",
        ),
    ] = False,
    memory: options.Memory = "512MiB",
    repeat: Annotated[int, Option(min=1, help="Number of runs; their median is reported.")] = 1,
    check: Annotated[bool, Option(help="Compare with the truth.")] = True,
    json_file: Annotated[
        Path | None, Option("--json", metavar="FILE", help="Write the outcome as JSON.")
    ] = None,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE", help="Plot one further run, not timed: .png, .svg or .pdf."),
    ] = None,
    workers: pools.Workers = None,
    scheduler: pools.Scheduler = None,
    mpi: pools.Mpi = False,
) -> int:
    """Run a problem of the Sparse DNN Graph Challenge and check its categories.

    Default: a generated network of 1024 neurons and 120 layers on scikit-learn's 1,797 digits,
    checked against SciPy in FP64. No download is needed.

    With workers, --nthreads is for each of them. They have started and have read the weights before
    the clock starts: from a folder for temporary files, which others than this machine's have to
    share (TMPDIR).
    """
    if data is not None and seed is not None:
        raise ArgumentError("--seed beside --data: official networks have none")
    if scheduler is None and not mpi:  # whose workers may be on other machines
        options.warn_of_threads(nthreads, workers)
    if json_file is not None:
        require_writable(json_file)
    if plot is not None:
        require_plottable(plot)
    with Bars() as bars, pools.executor(workers, scheduler, mpi) as executor:
        if data is None:
            with bars.busy("generating"):
                problem = problems.generated(
                    neurons, layers, images=images, inputs=inputs, seed=seed or 0
                )
        else:
            problem = problems.official(
                data, neurons, layers, images=images, inputs=inputs, truth=check,
                progress=bars.add("reading", begun=True),
            )  # fmt: skip
        with bars.inference(repeat):
            outcome = problems.run(
                problem,
                nthreads=nthreads,
                engine=engine,
                compress=compress,
                memory=memory,
                repeat=repeat,
                check=False,
                record=plot is not None,
                executor=executor,
                stats=None if executor is None else pools.Records(bars).add,
            )
    # What is found is told and kept, also where the check is interrupted or one of the files cannot
    # be written: last in, first out.
    with ExitStack() as kept:
        if plot is not None:
            kept.callback(_draw, outcome, plot)
        if json_file is not None:
            kept.callback(lambda: _write(outcome, json_file))
        say(fact_lines(_facts(outcome)))
        if check:
            with Bars() as bars:
                outcome = outcome.checked(bars.add("checking", begun=True))
        say(fact_lines({"check": _check(outcome)}))
    return _FAILED if outcome.check == "FAILED" else 0


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
    but = f", but for {counted(count, 'input')} that rounding decides" if count else ""
    return (
        f"{outcome.check} (against {outcome.checked_against}{but}), {outcome.check_seconds:.1f} s"
    )


def _engine(outcome: problems.Outcome) -> str:
    """Return the engine that was asked for, what computed, and whether it was compiled now."""
    words: str = outcome.engine
    if outcome.forms:
        words += f", {computed_in(outcome.forms, outcome.compiling)}"
    return words


def _facts(outcome: problems.Outcome) -> dict[str, str]:
    problem, machine, versions = outcome.problem, outcome.machine, outcome.versions
    edges = problem.network.edges
    runs = "" if len(outcome.seconds) == 1 else f", median of {len(outcome.seconds)} runs"
    rate = f"{outcome.edge_rate:.4g} edges/s"
    if outcome.compress:
        rate += " EFFECTIVE: equal inputs computed once"
    if outcome.processed is not None:
        rate += (
            f"; processed {outcome.processed:.4g} edges,"
            f" {outcome.processed / outcome.seconds_median:.4g} edges/s"
        )
    threads = f"{outcome.nthreads}"
    busy = {}
    if found := outcome.balance:
        spread = found.seconds
        threads += f" on each of {counted(len(found.workers), 'worker')}"
        busy["busy"] = (
            f"min {spread.min:.3f}, mean {spread.mean:.3f}, max {spread.max:.3f} s,"
            f" imbalance {spread.imbalance:.2f}"
        )
    return {
        "problem": problem.name,
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "threads": threads,
        "engine": _engine(outcome),
        "edges": f"{edges:,} (x {problem.inputs:,} inputs = {edges * problem.inputs:.4g})",
        "seconds": f"{outcome.seconds_median:.3f}{runs}",
        **busy,
        "edge rate": rate,
        "categories": f"{len(outcome.categories):,}",
    }
