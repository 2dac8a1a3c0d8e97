"""``gbdnn challenge``: a problem of the Graph Challenge, run and checked."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

import typer

import gbdnn
from gbdnn import challenge as problems
from gbdnn.cli import options  # noqa: TC001 -- typer reads the annotations
from gbdnn.cli.bars import Bars
from gbdnn.cli.options import size
from gbdnn.cli.report import lines, outcome_facts, write_json
from gbdnn.errors import ArgumentError
from gbdnn.io import require_writable

__all__ = ["challenge"]

_FAILED = 1


def challenge(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Official files; without it, a generated network."),
    ] = None,
    neurons: Annotated[int, typer.Option(help="1024, 4096, 16384 or 65536.")] = 1024,
    layers: Annotated[int, typer.Option(min=1, help="120, 480, 1920 or any other number.")] = 120,
    images: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="IDX file of images; scikit-learn's digits without it."),
    ] = None,
    inputs: Annotated[
        int | None,
        typer.Option(min=1, help="The first so many inputs; shifted copies beyond the images."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the generated network; 0 without it.")
    ] = None,
    nthreads: options.NThreads = None,
    engine: options.Engine = "auto",
    compress: Annotated[
        bool, typer.Option("--compress", help="Equal inputs go on as one; the rate is effective.")
    ] = False,
    memory: options.Memory = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs; their median counts.")] = 1,
    check: Annotated[bool, typer.Option(help="Compare with the truth.")] = True,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the outcome as JSON.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw one more run: .png, .svg or .pdf; not timed."),
    ] = None,
) -> int:
    """Run a problem of the Sparse DNN Graph Challenge and check its categories.

    Without options: a generated network of 1024 neurons and 120 layers on scikit-learn's 1,797
    digits, checked against SciPy in FP64. No download is needed.
    """
    if data is not None and seed is not None:
        raise ArgumentError("--seed beside --data: official networks have none")
    room = size(memory)
    if json_file is not None:
        require_writable(json_file)
    if plot is not None:
        gbdnn.viz.require_plottable(plot)
    with Bars() as bars:
        if data is None:
            problem = problems.generated(
                neurons, layers, images=images, inputs=inputs, seed=seed or 0
            )
        else:
            problem = problems.official(
                data, neurons, layers, images=images, inputs=inputs, truth=check,
                progress=bars.add("reading layers"),
            )  # fmt: skip
        outcome = problems.run(
            problem,
            nthreads=nthreads,
            engine=engine,
            compress=compress,
            memory=room,
            repeat=repeat,
            check=check,
            record=plot is not None,
            callback=bars.add_inference(layers, repeat),
            progress=bars.add("checking"),
        )
    if json_file is not None:
        write_json(outcome.as_json(), json_file)
    if plot is not None and outcome.records is not None:
        sizes = [layer.ncols for layer in problem.network.infos]
        figure = gbdnn.viz.run_figure(
            outcome.records, neurons=sizes, layers=len(sizes), title=problem.name
        )
        gbdnn.viz.save_figure(figure, plot)
    typer.echo(lines(outcome_facts(outcome)))
    return _FAILED if outcome.check == "FAILED" else 0
