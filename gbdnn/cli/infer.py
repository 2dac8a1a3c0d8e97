"""``gbdnn infer``: run features through a network."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option, echo

import gbdnn
from gbdnn.cli import formats, options
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
    import graphblas as gb


@options.takes_given()
def infer(
    network: Annotated[Path, Argument(metavar="NETWORK", help="In any format of gbdnn convert.")],
    features: Annotated[
        Path, Argument(metavar="FEATURES", help="tsv (row, column, value), or a store.")
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
) -> None:
    """Run features through a network and write the activations of its last layer.

    tsv is the challenge's format: tab-separated lines, 1-based, plain or gzip. The layers of a
    store are read during the run: the network may be larger than memory.
    """
    memory_bytes = options.size(memory)
    stored = to == "store" or (to is None and (out / "index.json").is_file())
    (require_storable if stored else require_writable)(out)
    with Bars() as bars:
        name = given.from_ or formats.guess(network)
        net = formats.read(network, name, given, bars.add("reading layers"))
        X = _features(features, net, inputs)
        Y = gbdnn.infer(
            net, X, nthreads=nthreads, engine=engine, compress="auto" if compress else False,
            memory=memory_bytes, callback=bars.add_inference(len(net)),
        )  # fmt: skip
    found = gbdnn.categories(Y)
    if stored:
        gbdnn.save(found if categories else Y, out)
    elif categories:
        write_categories(found, out)
    else:
        write_tsv(Y, out)
    echo(f"{out}: {len(found)} of {X.nrows} inputs have a category, {Y.nvals} activations")


def _features(path: Path, net: gbdnn.Network, inputs: int | None) -> gb.Matrix:
    """Return features from a store or a tsv file."""
    if not os.path.isdir(path):  # noqa: PTH112 -- Path.is_dir() raises for names too long
        return read_tsv(path, nrows=inputs, ncols=net.shape[0], dtype=net.dtype or "FP32")
    if inputs is not None:
        raise ArgumentError(f"--inputs beside {path}: a store knows how many it has")
    return open_features(path).rows()
