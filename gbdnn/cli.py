"""The shell: ``gbdnn challenge`` and ``gbdnn infer``, thin over the Python functions.

Exit codes: 0; 1 when a check FAILED; 2 for bad usage or bad input, with one line on standard error;
130 on Ctrl-C.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal, Self

try:
    import rich.console
    import rich.progress
    import typer
except ImportError as err:
    sys.stderr.write(f'gbdnn: the shell needs {err.name}: pip install "gbdnn[challenge]"\n')
    sys.exit(2)

import graphblas as gb

import gbdnn
from gbdnn import challenge as problems
from gbdnn.errors import ArgumentError, GbdnnError, NonFiniteError
from gbdnn.io import (
    find_neurons,
    read_network,
    read_tsv,
    require_writable,
    whole_file,
    write_categories,
    write_tsv,
)
from gbdnn.radixnet import CHALLENGE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from gbdnn.challenge import Outcome
    from gbdnn.metrics import LayerStats

__all__ = ["main"]

_FAILED, _BAD_INPUT, _INTERRUPTED = 1, 2, 130

app = typer.Typer(
    name="gbdnn",
    help="Sparse deep neural network inference in the language of GraphBLAS.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

NThreads = Annotated[
    int | None, typer.Option(min=1, help="Threads; GraphBLAS's default without it.")
]


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        code = app(standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
        if code == _INTERRUPTED:  # typer catches the KeyboardInterrupt and returns this
            _say("interrupted")
    except (KeyboardInterrupt, typer.Abort):
        _say("interrupted")
        code = _INTERRUPTED
    except typer.TyperException as err:
        _say(err.format_message())
        code = _BAD_INPUT
    except NonFiniteError as err:
        _say(f"{err} (layers count from 0)")
        code = _BAD_INPUT
    except GbdnnError as err:
        _say(str(err))
        code = _BAD_INPUT
    except (MemoryError, gb.exceptions.OutOfMemory):
        _say("out of memory: fewer inputs need less")
        code = _BAD_INPUT
    except OSError as err:  # standard output; files have their own errors
        # A reader that has gone is no fault. The interpreter's last flush must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
        if not isinstance(err, BrokenPipeError):
            _say(f"standard output cannot be written: {err.strerror or err}")
            code = _BAD_INPUT
    sys.exit(code)


Engine = Annotated[
    Literal["auto", "sparse", "full"],
    typer.Option(help="Form of the layers; auto takes the cheaper one."),
]


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"gbdnn {gbdnn.__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


@app.command()
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
    nthreads: NThreads = None,
    engine: Engine = "auto",
    compress: Annotated[
        bool, typer.Option("--compress", help="Equal inputs go on as one; the rate is effective.")
    ] = False,
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
    if json_file is not None:
        require_writable(json_file)
    if plot is not None:
        gbdnn.viz.require_plottable(plot)
    with _Bars() as bars:
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
            repeat=repeat,
            check=check,
            record=plot is not None,
            callback=bars.add_inference(layers, repeat),
            progress=bars.add("checking"),
        )
    if json_file is not None:
        with whole_file(json_file) as file:
            file.write((json.dumps(outcome.as_json(), indent=2) + "\n").encode())
    if plot is not None and outcome.records is not None:
        sizes = [layer.ncols for layer in problem.network]
        figure = gbdnn.viz.run_figure(
            outcome.records, neurons=sizes, layers=len(sizes), title=problem.name
        )
        gbdnn.viz.save_figure(figure, plot)
    typer.echo(_report(outcome))
    return _FAILED if outcome.check == "FAILED" else 0


@app.command()
def infer(
    network: Annotated[
        Path, typer.Argument(metavar="NETWORK", help="Folder of n<N>-l1.tsv, n<N>-l2.tsv, ...")
    ],
    features: Annotated[
        Path, typer.Argument(metavar="FEATURES", help="Tab-separated inputs: row, column, value.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="Where to write; .gz compresses.")
    ],
    neurons: Annotated[
        int | None, typer.Option(min=1, help="Neurons per layer, if the folder has several sizes.")
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, help="How many layers; all without it.")
    ] = None,
    inputs: Annotated[
        int | None, typer.Option(min=1, help="Number of inputs, if the last ones are empty.")
    ] = None,
    bias: Annotated[
        float | None, typer.Option(help="The challenge's for its sizes; 0 for others.")
    ] = None,
    bias_rule: Annotated[
        Literal["entries", "all"], typer.Option(help="Where the bias is added.")
    ] = "entries",
    clip: Annotated[
        float | None, typer.Option(help="Upper limit of the activations; 32 without it.")
    ] = None,
    no_clip: Annotated[bool, typer.Option("--no-clip", help="No upper limit.")] = False,
    dtype: Annotated[Literal["FP32", "FP64"], typer.Option(help="What to compute in.")] = "FP32",
    categories: Annotated[
        bool, typer.Option("--categories", help="Write the categories, not the activations.")
    ] = False,
    nthreads: NThreads = None,
    engine: Engine = "auto",
    compress: Annotated[
        bool, typer.Option(help="Inputs that have become equal go on as one.")
    ] = True,
) -> None:
    """Run your own files through a network and write the activations of its last layer.

    All files are in the challenge's format: tab-separated, counted from 1, plain or gzip.
    """
    if no_clip and clip is not None:
        raise ArgumentError("--no-clip beside --clip: one of them")
    require_writable(out)
    limit = None if no_clip else 32.0 if clip is None else clip
    with _Bars() as bars:
        n = neurons or find_neurons(network)
        net = read_network(
            network, n, layers,
            bias=CHALLENGE[n].bias if bias is None and n in CHALLENGE else bias or 0.0,
            bias_rule=bias_rule, clip=limit, dtype=dtype,
            progress=bars.add("reading layers"),
        )  # fmt: skip
        X = read_tsv(features, nrows=inputs, ncols=n, dtype=dtype)
        callback = bars.add_inference(len(net))
        Y = gbdnn.infer(
            net, X, nthreads=nthreads, engine=engine, compress="auto" if compress else False,
            callback=callback,
        )  # fmt: skip
    if categories:
        write_categories(gbdnn.categories(Y), out)
    else:
        write_tsv(Y, out)
    live = len(gbdnn.categories(Y))
    typer.echo(f"{out}: {live} of {X.nrows} inputs have a category, {Y.nvals} activations")


class _Bars:
    """Progress bars on standard error, if a person is watching; otherwise nothing."""

    def __init__(self) -> None:
        streams = (sys.stdout, sys.stderr)
        self._shown = all(stream is not None and stream.isatty() for stream in streams)
        self._progress = rich.progress.Progress(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(),
            rich.progress.MofNCompleteColumn(),
            rich.progress.TimeElapsedColumn(),
            console=rich.console.Console(stderr=True),
            transient=True,
            disable=not self._shown,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def add(self, what: str) -> Callable[[int, int], None] | None:
        """Return what to call with (done, count); the bar appears at the first call."""
        if not self._shown:
            return None
        task = self._progress.add_task(what, total=None, visible=False)

        def update(done: int, count: int) -> None:
            self._progress.update(task, completed=done, total=count, visible=True)

        return update

    def add_inference(self, layers: int, repeat: int = 1) -> Callable[[LayerStats], None] | None:
        """Return a callback for `infer` that counts the deepest layer reached, over all runs."""
        update = self.add("inference")
        if update is None:
            return None
        runs, deepest = 0, -1

        def callback(stats: LayerStats) -> None:
            nonlocal runs, deepest
            if stats.block == 0 and stats.layer == 0:
                runs, deepest = runs + 1, -1
            if stats.layer > deepest:
                deepest = stats.layer
                update((runs - 1) * layers + deepest + 1, layers * repeat)

        return callback


def _report(outcome: Outcome) -> str:
    """Return the outcome for people: a line per fact."""
    problem, machine, versions = outcome.problem, outcome.machine, outcome.versions
    edges = problem.network.edges
    runs = "" if len(outcome.seconds) == 1 else f", median of {len(outcome.seconds)} runs"
    facts = {
        "problem": problem.name,
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "threads": f"{outcome.nthreads}",
        "engine": outcome.engine,
        "edges": f"{edges:,} (x {problem.inputs:,} inputs = {edges * problem.inputs:.4g})",
        "seconds": f"{outcome.seconds_median:.3f}{runs}",
        "edge rate": _rate(outcome),
        "categories": f"{len(outcome.categories):,}",
        "check": outcome.check,
    }
    if outcome.truth is not None:
        facts["check"] += f" (against {outcome.checked_against})"
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items())


def _rate(outcome: Outcome) -> str:
    """Return the edge rate; a compressed run's is effective, with the real number beside it."""
    if outcome.processed is None:
        return f"{outcome.edge_rate:.4g} edges/s"
    real = outcome.processed / outcome.seconds_median
    return (
        f"{outcome.edge_rate:.4g} edges/s EFFECTIVE: equal inputs went on as one;"
        f" really processed {outcome.processed:.4g} edges, {real:.4g} edges/s"
    )


def _say(message: str) -> None:
    """Write one line to standard error, if it is open."""
    if sys.stderr is not None:
        sys.stderr.write(f"gbdnn: {' '.join(message.split())}\n")


if __name__ == "__main__":
    main()
