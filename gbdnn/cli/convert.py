"""``gbdnn convert``: convert a network from one format to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

from typer import Argument, Option, echo

import gbdnn
from gbdnn.cli import formats, options
from gbdnn.cli.terminal import Bars
from gbdnn.io import require_storable


@options.takes_given()
def convert(
    source: Annotated[Path, Argument(metavar="IN", help="A network: a folder or a file.")],
    out: Annotated[Path, Argument(metavar="OUT", help="Output: a file, a folder or a store.")],
    given: options.Given,
    to: Annotated[
        options.FormatName | None,
        Option("--to", help="Format of OUT (default: by its ending, else a store)."),
    ] = None,
    lossy: Annotated[
        bool, Option("--lossy", help="Omit what OUT's format does not store.")
    ] = False,
) -> None:
    """Convert a network between a store, tsv, matrix-market, onnx and torch.

    tsv is the challenge's folder, torch a file of torch.save(model.state_dict()). Options supply
    what IN's format does not store. What OUT's format does not store is an error, unless --lossy.
    Layers are converted one by one from tsv to a store, and from a store to all but onnx and torch.
    OUT is written atomically: a store or a file is replaced, other folders must be new or empty.
    """
    name = given.from_ or formats.guess(source)
    target = to or formats.guess_target(out)
    lost: list[str] = []
    with Bars() as bars:
        if target == "store":
            require_storable(out)
        if name == "tsv" and target == "store":
            each = formats.read_tsv_layers(source, given, bars.add("converting layers"))
            gbdnn.save(each, out)
        else:
            net = formats.read(source, name, given, bars.add("reading layers"))
            if lossy:
                lost = formats.losses(net, target)
            else:
                formats.require_place(net, out, target)
            formats.write(net, out, target, bars.add("writing layers"))
    left_out = f", without {', '.join(lost)}" if lost else ""
    echo(f"{out}: {target}, from {name}{left_out}")
