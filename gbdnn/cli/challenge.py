"""``gbdnn challenge``: run a problem of the Graph Challenge and check its categories."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

import gbdnn
from gbdnn import challenge as problems
from gbdnn.cli import options, outputs
from gbdnn.cli import workers as pools
from gbdnn.cli.terminal import Bar, kernels, lines_of, say
from gbdnn.errors import ArgumentError
from gbdnn.io.writing import is_standard_output, require_writable, whole_file
from gbdnn.viz.figures import require_plottable, save_figure, stacked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gbdnn.engine.stats import LayerStats
    from gbdnn.thread_scaling import Scaling

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
        int,
        Option(
            min=0,
            help="Runs after the first (of each number of threads); their median is reported.",
        ),
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
    force: outputs.Force = False,
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
    counts = sorted(set(nthreads)) if nthreads else [None]
    several, study = len(counts) > 1, None
    options.exclusive(workers=workers, scheduler=scheduler, mpi=mpi)
    if several and (workers or scheduler or mpi):
        raise ArgumentError("several numbers of threads cannot be combined with workers")
    if json_file is not None:
        require_writable(json_file, replace=force)
    if plot is not None:
        require_plottable(plot, replace=force)
    with Bar() as bar, pools.executor(workers, scheduler, mpi) as executor:
        bar.begin("reading" if data else "generating")
        if data is None:
            problem = problems.generate(
                neurons, layers, images=images, inputs=inputs, seed=seed or 0
            )
        else:
            problem = problems.load(
                data, neurons, layers, images=images, inputs=inputs, truth=check, progress=bar.show
            )
        with bar.inference():
            outcome = problems.run(
                problem, nthreads=counts[-1], engine=engine, memory=memory,
                deduplicate="auto" if deduplicate else False,
                check=False, executor=executor, repeat=0 if several else repeat,
            )  # fmt: skip
            if several:
                outcome, study = _sweep(outcome, counts, repeat, memory=memory)
                say(repr(study), json_file)
        if plot is not None:
            save_figure(_drawn(outcome, study, memory), plot)
        if json_file is not None and not is_standard_output(json_file):
            _write(outcome, study, json_file)  # before the check, which may take longer
        say(lines_of(_facts(outcome)), json_file)
        if check:
            bar.begin("checking")
            outcome = outcome.checked(bar.show)
        if json_file is not None:
            _write(outcome, study, json_file)
    say(lines_of({"check": _check(outcome)}), json_file)
    return int(outcome.check == "FAILED")


def _sweep(
    outcome: problems.Outcome, counts: list[Any], repeat: int, **options: Any
) -> tuple[problems.Outcome, Scaling]:
    """Measure numbers of threads; return the outcome with the times of the last one."""
    problem, engine = outcome.problem, outcome.engine
    options |= {"engine": engine, "deduplicate": "auto" if outcome.deduplicate else False}
    call = partial(gbdnn.infer, problem.network, problem.features, **options)
    study = gbdnn.scaling({engine: lambda n: call(nthreads=n)}, counts, rounds=max(1, repeat))
    seconds = [run.seconds for run in study.runs if run.threads == outcome.nthreads]
    return replace(outcome, seconds=seconds), study


def _write(outcome: problems.Outcome, study: Scaling | None, path: Path) -> None:
    report = outcome.as_json() | ({"scaling": study.as_json()} if study else {})
    with whole_file(path) as file:
        file.write((json.dumps(report, indent=2) + "\n").encode())


def _drawn(outcome: problems.Outcome, study: Scaling | None, memory: int | str) -> Figure:
    """Return a figure of the study, or of one more run by layer."""
    problem, plots = outcome.problem, [] if study is None else [study.plot]
    if study is None:
        records: list[LayerStats] = []
        gbdnn.infer(
            problem.network, problem.features, engine=outcome.engine, memory=memory,
            deduplicate="auto" if outcome.deduplicate else False, nthreads=outcome.nthreads,
            callback=records.append,
        )  # fmt: skip
        sizes = [layer.ncols for layer in problem.network.infos]
        plots.append(partial(gbdnn.viz.plot_activity, records, neurons=sizes, layers=len(sizes)))
        plots.append(partial(gbdnn.viz.plot_layer_times, records, layers=len(sizes)))
    return stacked(problem.name, *plots)


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
