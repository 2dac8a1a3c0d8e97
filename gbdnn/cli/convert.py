"""``gbdnn convert``: convert a network from one format to another."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import Annotated

from typer import Argument, Option

from gbdnn import io
from gbdnn.cli import options, outputs
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
    force: outputs.Force = False,
) -> None:
    """Convert a network between a store, tsv, matrix-market, onnx and torch.

    tsv is the challenge's folder, torch a file of torch.save(model.state_dict()). Options supply
    what IN's format does not store. What OUT's format does not store is an error, unless --lossy.
    Layers are converted one by one from tsv to a store, and from a store to all but onnx and torch.
    OUT is written atomically, and must be new or an empty folder; --force replaces a store or a
    file.
    """
    form, target = given.from_ or format_of(source), to or target_format(out)
    outputs.require_free_network(out, target, force=force)
    with Bars() as bars:
        show = bars.add("converting layers")
        lost = io.convert(source, out, to=target, lossy=lossy, progress=show, **given.keywords())
    left_out = f", without {', '.join(lost)}" if lost else ""
    say(f"{out}: {target}, from {form}{left_out}")
    before, after = (
        sum(file.stat().st_size for file in network_files(path, name, dict(known)))
        for path, name, known in ((source, form, given.keywords()), (out, target, {}))
    )
    if after > before:
        why = "; it has all zeros, too" if target in ("onnx", "torch") else ""
        say(f"{out}: {in_bytes(after)}, {after / before:.3g} times {source}{why}")
