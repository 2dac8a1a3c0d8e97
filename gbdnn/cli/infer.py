"""``gbdnn infer``: one's own network and features."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

import typer

import gbdnn
from gbdnn.cli import formats, options
from gbdnn.cli.bars import Bars
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

__all__ = ["infer"]


def infer(
    network: Annotated[
        Path, typer.Argument(metavar="NETWORK", help="Any format that convert knows.")
    ],
    features: Annotated[
        Path, typer.Argument(metavar="FEATURES", help="Lines of row, column, value; or a store.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="Where to write; .gz compresses.")
    ],
    from_: Annotated[
        formats.FormatName | None,
        typer.Option("--from", help="NETWORK's format; by what is there without it."),
    ] = None,
    to: Annotated[
        Literal["tsv", "store"] | None,
        typer.Option("--to", help="OUT's format; tsv without it, unless OUT is a store."),
    ] = None,
    neurons: options.Neurons = None,
    layers: options.Layers = None,
    prefix: options.Prefix = None,
    inputs: Annotated[
        int | None, typer.Option(min=1, help="Of lines: how many, if the last ones are empty.")
    ] = None,
    bias: options.Bias = None,
    bias_rule: options.Rule = None,
    clip: options.Clip = None,
    no_clip: options.NoClip = False,
    last_activation: options.LastActivation = None,
    dtype: options.Dtype = None,
    categories: Annotated[
        bool, typer.Option("--categories", help="Write the categories, not the activations.")
    ] = False,
    nthreads: options.NThreads = None,
    engine: options.Engine = "auto",
    compress: options.Compress = True,
    memory: options.Memory = None,
) -> None:
    """Run your own files through a network and write the activations of its last layer.

    Lines are in the challenge's format: tab-separated, counted from 1, plain or gzip. The layers of
    a store are read as the run goes: the network may be larger than memory.
    """
    given = formats.Given(
        neurons=neurons,
        layers=layers,
        prefix=prefix,
        bias=bias,
        bias_rule=bias_rule,
        clip=options.limit(clip, no_clip),
        last_activation=last_activation,
        dtype=dtype,
    )
    room = options.size(memory)
    stored = to == "store" or (to is None and (out / "index.json").is_file())
    (require_storable if stored else require_writable)(out)
    with Bars() as bars:
        name = from_ or formats.guess(network)
        net = formats.read(network, name, given, bars.add("reading layers"))
        X = _features(features, net, inputs)
        Y = gbdnn.infer(
            net, X, nthreads=nthreads, engine=engine, compress="auto" if compress else False,
            memory=room, callback=bars.add_inference(len(net)),
        )  # fmt: skip
    found = gbdnn.categories(Y)
    if stored:
        gbdnn.save(found if categories else Y, out)
    elif categories:
        write_categories(found, out)
    else:
        write_tsv(Y, out)
    typer.echo(f"{out}: {len(found)} of {X.nrows} inputs have a category, {Y.nvals} activations")


def _features(path: Path, net: gbdnn.Network, inputs: int | None) -> gb.Matrix:
    """Return the features of a store, or of tab-separated lines."""
    try:
        stored = path.is_dir()
    except OSError:  # read_tsv tells it
        stored = False
    if not stored:
        return read_tsv(path, nrows=inputs, ncols=net.shape[0], dtype=net.dtype or "FP32")
    if inputs is not None:
        raise ArgumentError(f"--inputs beside {path}: a store knows how many it has")
    return open_features(path).rows()
