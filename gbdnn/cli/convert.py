"""``gbdnn convert``: convert a network from one format to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

from typer import Argument, Option

from gbdnn import io
from gbdnn.cli import options, outputs, resume
from gbdnn.cli.bars import Bars
from gbdnn.cli.terminal import in_bytes, say
from gbdnn.io.formats import FormatName, format_of, network_files, target_format


@options.takes_given()
def convert(
    source: Annotated[Path, Argument(metavar="IN", help="A network: a folder or a file.")],
    out: Annotated[Path, Argument(metavar="OUT", help="Output: a file, a folder or a store.")],
    given: options.Given,
    to: Annotated[
        FormatName | None,
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
    form, target = given.from_ or format_of(source), to or target_format(out)
    outputs.require_free_network(out, target, force=force, restart=restart)
    with Bars() as bars:
        show = bars.add("converting layers")
        resumed = resume.Resumed(out, show, restart=restart, force=force)
        lost = io.convert(
            source, out, to=target, lossy=lossy, restart=restart,
            progress=resumed if target == "store" else show, **given.keywords(),
        )  # fmt: skip
    resumed.tell("write")
    left_out = f", without {', '.join(lost)}" if lost else ""
    say(f"{out}: {target}, from {form}{left_out}")
    before, after = (
        sum(file.stat().st_size for file in network_files(path, name, dict(known)))
        for path, name, known in ((source, form, given.keywords()), (out, target, {}))
    )
    if after > before:
        why = "; it has all zeros, too" if target in ("onnx", "torch") else ""
        say(f"{out}: {in_bytes(after)}, {after / before:.3g} times {source}{why}")
