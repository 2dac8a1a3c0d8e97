"""``gbdnn convert``: convert a network from one format to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

from typer import Argument, Option

from gbdnn.cli import formats, options, outputs, resume
from gbdnn.cli.terminal import Bars, say
from gbdnn.errors import ArgumentError


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
    restart: resume.Restart = False,
    force: outputs.Force = False,
) -> None:
    """Convert a network between a store, tsv, matrix-market, onnx and torch.

    tsv is the challenge's folder, torch a file of torch.save(model.state_dict()). Options supply
    what IN's format does not store. What OUT's format does not store is an error, unless --lossy.
    Layers are converted one by one from tsv to a store, and from a store to all but onnx and torch.
    OUT is written atomically, and must be new or an empty folder; --force replaces a store or a
    file. If it is killed while it writes a store, the same command goes on with the first layer
    that is not complete.
    """
    name = given.from_ or formats.guess(source)
    target = to or formats.guess_target(out)
    lost: list[str] = []
    with Bars() as bars:
        if restart and target != "store":
            raise ArgumentError(f"--restart: {out} is no store, and is always written anew")
        formats.require_free(out, target, force=force)
        if name == "tsv" and target == "store":
            given.require_only(formats.options_of(name), name)
            layers = resume.of_tsv(source, given)
            resume.save(layers, out, bars.add("converting layers"), restart=restart, force=force)
        else:
            net = formats.read(source, name, given, bars.add("reading layers"))
            if lossy:
                lost = formats.losses(net, target)
            else:
                formats.require_place(net, out, target, lossy=True)
            show = bars.add("writing layers")
            if target == "store":
                resume.save(resume.of_layers(net), out, show, restart=restart, force=force)
            else:
                formats.write(net, out, target, show)
    left_out = f", without {', '.join(lost)}" if lost else ""
    say(f"{out}: {target}, from {name}{left_out}")
