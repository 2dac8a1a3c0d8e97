"""``gbdnn convert``: a network from one format to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

import typer

import gbdnn
from gbdnn.cli import formats, options
from gbdnn.cli.bars import Bars
from gbdnn.cli.losses import losses, require_place
from gbdnn.io import require_storable

__all__ = ["convert"]


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A network: a folder or a file.")],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where to: a store without an ending or --to.")
    ],
    from_: Annotated[
        formats.FormatName | None,
        typer.Option("--from", help="IN's format; by what is there without it."),
    ] = None,
    to: Annotated[
        formats.FormatName | None,
        typer.Option("--to", help="OUT's format; .onnx, .pt, .npz, .mtx tell it without."),
    ] = None,
    lossy: Annotated[
        bool, typer.Option("--lossy", help="Leave out what OUT's format has no place for.")
    ] = False,
    neurons: options.Neurons = None,
    layers: options.Layers = None,
    prefix: options.Prefix = None,
    bias: options.Bias = None,
    bias_rule: options.Rule = None,
    clip: options.Clip = None,
    no_clip: options.NoClip = False,
    last_activation: options.LastActivation = None,
    dtype: options.Dtype = None,
) -> None:
    """Convert a network between a store, tsv, npz, matrix-market, onnx and torch.

    tsv is the challenge's folder, torch a file of torch.save(model.state_dict()). Options say what
    IN's format does not. What OUT's format has no place for is an error, unless --lossy. Layers go
    one by one from tsv to a store, and from a store to all but onnx and torch. OUT appears whole or
    not at all: a store or a file is replaced, other folders have to be new or empty.
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
    name = from_ or formats.guess(source)
    target = to or formats.guess_target(out)
    lost: list[str] = []
    with Bars() as bars:
        if target == "store":
            require_storable(out)
        if name == "tsv" and target == "store":
            each = formats.layers_of(source, name, given, bars.add("converting layers"))
            gbdnn.save(each, out)
        else:
            net = formats.read(source, name, given, bars.add("reading layers"))
            if lossy:
                lost = losses(net, target)
            else:
                require_place(net, out, target)
            formats.write(net, out, target, bars.add("writing layers"))
    left_out = f", without {', '.join(lost)}" if lost else ""
    typer.echo(f"{out}: {target}, from {name}{left_out}")
