"""``gbdnn infer``: run features through a network."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from typer import Argument, Option

import gbdnn
from gbdnn.cli import options, outputs, ranks
from gbdnn.cli import workers as pools
from gbdnn.cli.bars import Bars
from gbdnn.cli.terminal import computed_in, say
from gbdnn.errors import ArgumentError
from gbdnn.io import (
    open_features,
    read_features,
    write_categories,
    write_tsv,
)
from gbdnn.io.challenge.table import write_columns
from gbdnn.io.datasets import KINDS, tells_shape
from gbdnn.io.formats import read_network
from gbdnn.kernels.fused import FUSED

if TYPE_CHECKING:
    import graphblas as gb

    from gbdnn.engine.progress import RunProgress
    from gbdnn.io import StoredFeatures

_AT_ONCE = 1 << 16  # inputs of an answer in a store


@options.takes_given()
def infer(
    network: Annotated[Path, Argument(metavar="NETWORK", help="In any format of gbdnn convert.")],
    features: Annotated[
        Path, Argument(metavar="FEATURES", help=f"{KINDS}; as gbdnn train reads them.")
    ],
    out: Annotated[
        Path,
        Option("--out", "-o", metavar="OUT", help="Output: a store, or a file .tsv or .tsv.gz."),
    ],
    given: options.Given,
    to: Annotated[
        Literal["tsv", "store"] | None,
        Option("--to", help="Format of OUT (default: by its ending, else a store)."),
    ] = None,
    inputs: Annotated[
        int | None, Option(min=1, help="tsv: number of inputs, if the last ones are empty.")
    ] = None,
    categories: Annotated[
        bool, Option("--categories", help="Write the categories, not the activations.")
    ] = False,
    argmax: Annotated[
        bool,
        Option("--argmax", help="Write lines with the number, from 0, of each largest activation."),
    ] = False,
    nthreads: options.NThreads = None,
    engine: options.Engine = "auto",
    compress: options.Compress = True,
    memory: options.Memory = "512MiB",
    workers: pools.Workers = None,
    scheduler: pools.Scheduler = None,
    mpi: pools.Mpi = False,
    pipeline: ranks.Pipeline = False,
    cuts: ranks.Cuts = None,
    batch: Annotated[
        int | None, Option(min=1, help="OUT a store: inputs of a part, at least.")
    ] = None,
    restart: Annotated[
        bool, Option("--restart", help="Discard the finished parts of an earlier run.")
    ] = False,
    force: outputs.Force = False,
) -> None:
    """Run features through a network and write the activations of its last layer.

    OUT is a store, or the challenge's format, tsv: tab-separated lines, 1-based, plain or gzip. The
    layers of a store are read during the run: the network may be larger than memory. Labels, by
    --argmax, are a number in each line, as gbdnn train reads them.

    Activations are written into a store part by part: if the command is interrupted, the same
    command computes the missing parts. An existing store or file is replaced only with --force,
    which begins anew. With workers the network is a store that all of them can
    read.

    In a pipeline every rank reads the network, of a store its own layers alone; rank 0 reads the
    features, and writes.
    """
    settings: dict[str, Any] = {
        "nthreads": nthreads,
        "engine": engine,
        "compress": "auto" if compress else False,
        "memory": memory,
    }
    pools.require_one(
        workers=workers is not None, scheduler=scheduler is not None, mpi=mpi, pipeline=pipeline
    )
    if scheduler is None and not mpi and not pipeline:  # which may be on other machines
        options.warn_of_threads(nthreads, workers)
    given_input = _Input(network, given, features, inputs)
    if argmax and categories:
        raise ArgumentError("--argmax beside --categories: one of them")
    what = "labels" if argmax else "categories" if categories else "activations"
    result = _Output(out, outputs.features_format(out, to) == "store", what, force)
    if argmax and result.stored:
        raise ArgumentError(f"{out}: --argmax writes lines: a file .tsv or .tsv.gz, or --to tsv")
    in_parts = result.stored and what == "activations" and not pipeline
    if not in_parts and (restart or batch is not None):
        option = "--restart" if restart else "--batch"
        raise ArgumentError(f"{option} goes with activations in a store, and not with --pipeline")
    if pipeline:
        _over_ranks(given_input, result, {"cuts": cuts, **settings})
        return
    if cuts is not None:
        raise ArgumentError("--cuts goes with --pipeline")
    # Of parts that are there it is seen later whether they are this run's.
    result.require_free(resumes=in_parts)
    with Bars() as bars, pools.executor(workers, scheduler, mpi) as executor:
        net = given_input.read_network(bars)
        before = FUSED.seconds_compiling(net.dtype)
        with bars.busy("reading"):
            X = given_input.read_features(net, stays=in_parts or executor is not None)
        shown: AbstractContextManager[RunProgress | None] = nullcontext()
        records = None if executor is None else pools.Records(bars)
        if executor is None:
            shown = bars.inference()
        else:
            if len(net) and net.source is None:
                raise ArgumentError(
                    f"{network} is not a store, which workers could read:"
                    f" gbdnn convert {network} ..."
                )
            settings |= {"executor": executor, "stats": records and records.add}
        if in_parts and len(net):
            show = bars.add("inputs")
            with shown as work:
                Y = gbdnn.infer_to_store(
                    net, X, out, batch=batch, restart=restart or force, progress=show, **settings
                )
            with bars.busy("counting"):
                living = _living(Y)
        else:
            result.require_free()
            with shown as work:
                Y = gbdnn.infer(net, X, **settings)
            with bars.busy("writing"):
                living = result.write(Y)
    say(result.summary(living, X.shape[0], Y.nvals))
    if records is not None:
        say(str(records))
    elif work is not None and work.forms:
        say(computed_in(work.forms, FUSED.seconds_compiling(net.dtype) - before))


def _over_ranks(given: _Input, result: _Output, settings: dict[str, Any]) -> None:
    """Run features through a network whose layers are shared out over MPI's ranks."""
    command = ranks.Command()

    def read() -> tuple[gbdnn.Network, Any]:
        if command.leads:
            result.require_free()
        net = given.read_network(bars)
        return net, given.read_features(net, stays=True) if command.leads else None

    with Bars(silent=not command.leads) as bars:
        net, X = command.together(read)
        with bars.busy("inference"):
            Y = command.infer(net, X, **settings)
    living = command.together(lambda: 0 if Y is None else result.write(Y))
    if Y is not None:
        say(result.summary(living, X.shape[0], Y.nvals))
        say(str(command))


@dataclass(frozen=True)
class _Input:
    """What is read: a network and features."""

    network: Path
    given: options.Given
    features: Path
    inputs: int | None

    def read_network(self, bars: Bars) -> gbdnn.Network:
        return read_network(
            self.network, progress=bars.add("reading layers"), **self.given.keywords()
        )

    def read_features(self, net: gbdnn.Network, *, stays: bool) -> Any:
        """Return features from a file or a store; those of a store may stay in it."""
        path, inputs = self.features, self.inputs
        if inputs is not None and tells_shape(path):
            raise ArgumentError(f"--inputs beside {path}: the file or store tells how many it has")
        if stays and os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises for names too long
            return open_features(path)
        ncols = None if tells_shape(path) else net.shape[0]
        return read_features(path, nrows=inputs, ncols=ncols, dtype=net.dtype)


@dataclass(frozen=True)
class _Output:
    """What is written: activations, categories or labels, into a store or a tsv file."""

    path: Path
    stored: bool
    what: str
    force: bool

    def require_free(self, *, resumes: bool = False) -> None:
        """Raise OutputError if nothing can be written, or something would be replaced."""
        outputs.require_free(self.path, stored=self.stored, force=self.force, resumes=resumes)

    def write(self, Y: gb.Matrix) -> int:
        """Write the answer, and return how many inputs have a category, or how many labels."""
        if self.what == "labels":
            labels = gbdnn.argmax(Y)
            write_columns({"label": labels}, self.path)
            return len(np.unique(labels))
        found = gbdnn.categories(Y)
        if self.stored:
            gbdnn.save(found if self.what == "categories" else Y, self.path)
        elif self.what == "categories":
            write_categories(found, self.path)
        else:
            write_tsv(Y, self.path)
        return len(found)

    def summary(self, living: int, inputs: int, nvals: int) -> str:
        """Return the line that tells what was written."""
        if self.what == "labels":
            return f"{self.path}: labels of {inputs} inputs, {living} different ones"
        return f"{self.path}: {living} of {inputs} inputs have a category, {nvals} activations"


def _living(Y: StoredFeatures) -> int:
    return sum(len(gbdnn.categories(batch.matrix())) for batch in Y.batches(_AT_ONCE))
