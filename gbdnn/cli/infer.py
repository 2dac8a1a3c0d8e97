"""``gbdnn infer``: run features through a network."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option, echo

import gbdnn
from gbdnn.cli import datasets, formats, options
from gbdnn.cli import workers as pools
from gbdnn.cli.terminal import Bars
from gbdnn.errors import ArgumentError
from gbdnn.io import (
    open_features,
    read_tsv,
    require_storable,
    require_writable,
    write_categories,
    write_tsv,
)

if TYPE_CHECKING:
    from gbdnn.io import StoredFeatures

_AT_ONCE = 1 << 16  # inputs of an answer in a store


@options.takes_given()
def infer(
    network: Annotated[Path, Argument(metavar="NETWORK", help="In any format of gbdnn convert.")],
    features: Annotated[
        Path, Argument(metavar="FEATURES", help=f"{datasets.KINDS}; as gbdnn train reads them.")
    ],
    out: Annotated[Path, Option("--out", "-o", metavar="OUT", help="Output; .gz compresses.")],
    given: options.Given,
    to: Annotated[
        Literal["tsv", "store"] | None,
        Option("--to", help="Format of OUT (default: tsv, or a store to replace one)."),
    ] = None,
    inputs: Annotated[
        int | None, Option(min=1, help="tsv: number of inputs, if the last ones are empty.")
    ] = None,
    categories: Annotated[
        bool, Option("--categories", help="Write the categories, not the activations.")
    ] = False,
    nthreads: options.NThreads = None,
    engine: options.Engine = "auto",
    compress: options.Compress = True,
    memory: options.Memory = None,
    workers: pools.Workers = None,
    scheduler: pools.Scheduler = None,
    mpi: pools.Mpi = False,
) -> None:
    """Run features through a network and write the activations of its last layer.

    tsv is the challenge's format: tab-separated lines, 1-based, plain or gzip. The layers of a
    store are read during the run: the network may be larger than memory.

    With workers the network is a store that all of them can read. They write a store part by part;
    the same command after a failure computes the missing parts.
    """
    memory_bytes = options.size(memory)
    stored = to == "store" or (to is None and (out / "index.json").is_file())
    (require_storable if stored else require_writable)(out)
    with Bars() as bars, pools.executor(workers, scheduler, mpi) as executor:
        name = given.from_ or formats.guess(network)
        net = formats.read(network, name, given, bars.add("reading layers"))
        X = _features(features, net, inputs, stays=executor is not None)
        inputs = X.shape[0]
        settings: dict[str, Any] = {
            "nthreads": nthreads,
            "engine": engine,
            "compress": "auto" if compress else False,
            "memory": memory_bytes,
        }
        if executor is None:
            Y = gbdnn.infer(net, X, callback=bars.add_inference(len(net)), **settings)
        else:
            if len(net) and net.source is None:
                raise ArgumentError(
                    f"{network} is no store, which workers could read: gbdnn convert {network} ..."
                )
            records = pools.Records(bars.add("batches"))
            settings |= {"executor": executor, "stats": records.add}
            if stored and not categories:
                written = gbdnn.infer_to_store(net, X, out, **settings)
                _report(out, _living(written), inputs, written.nvals, records)
                return
            Y = gbdnn.infer(net, X, **settings)
    found = gbdnn.categories(Y)
    if stored:
        gbdnn.save(found if categories else Y, out)
    elif categories:
        write_categories(found, out)
    else:
        write_tsv(Y, out)
    _report(out, len(found), inputs, Y.nvals, None if executor is None else records)


def _report(out: Path, living: int, inputs: int, nvals: int, records: pools.Records | None) -> None:
    echo(f"{out}: {living} of {inputs} inputs have a category, {nvals} activations")
    if records is not None:
        echo(str(records))


def _living(Y: StoredFeatures) -> int:
    return sum(len(gbdnn.categories(batch)) for batch in Y.batches(_AT_ONCE))


def _features(path: Path, net: gbdnn.Network, inputs: int | None, *, stays: bool) -> Any:
    """Return features from a file or a store; those of a store may stay in it.

    What is none of the other formats is tsv, whatever its name.
    """
    if not os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises for names too long
        dtype = net.dtype or "FP32"
        if not datasets.knows(path):
            return read_tsv(path, nrows=inputs, ncols=net.shape[0], dtype=dtype)
        if inputs is not None:
            raise ArgumentError(f"--inputs beside {path}: the file tells how many it has")
        return datasets.read_features(path, dtype=dtype)
    if inputs is not None:
        raise ArgumentError(f"--inputs beside {path}: a store knows how many it has")
    stored = open_features(path)
    return stored if stays else stored.rows()
