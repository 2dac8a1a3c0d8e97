"""``gbdnn convert``: convert a network from one format to another."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from gbdnn import io
from gbdnn.cli import options, outputs
from gbdnn.cli.terminal import Bar, say
from gbdnn.io.datasets import FEATURES
from gbdnn.io.format import FORMATS
from gbdnn.io.formats import STORE, target_format
from gbdnn.io.store.folder import INDEX, Reader

if TYPE_CHECKING:
    Name = str
else:  # a type from whose values typer makes completions, help and errors
    Name = Enum("Name", {name: name for name in FORMATS}, type=str)


def convert(
    source: Annotated[Path, Argument(metavar="IN", help="Network: a folder or a file.")],
    out: Annotated[
        Path,
        Argument(metavar="OUT", callback=outputs.named, help="A store, a file, a folder or -."),
    ],
    from_: Annotated[
        Name | None, Option("--from", help="Format of IN (default: detected).")
    ] = None,
    to: Annotated[
        Name | None, Option(help="Format of OUT (default: from its suffix, else store).")
    ] = None,
    layers: options.Layers = None,
    bias: options.Bias = None,
    bias_rule: Annotated[
        Literal["entries", "all"] | None,
        Option(help=f"Bias rule: {options.defaults('bias_rule')}."),
    ] = None,
    activation: Annotated[
        Literal["relu", "identity"] | None,
        Option(help="torch, where it is required: activation of all layers but the last."),
    ] = None,
    clip: options.Clip = None,
    last_activation: Annotated[
        Literal["relu", "identity"] | None,
        Option(help=f"Last activation: {options.defaults('last_activation')}."),
    ] = None,
    logits: Annotated[
        bool, Option("--logits", help="onnx: drop a final Softmax, LogSoftmax or Sigmoid.")
    ] = False,
    dtype: options.DType = None,
    lossy: Annotated[
        bool, Option("--lossy", help="Drop properties that the format of OUT cannot store.")
    ] = False,
    force: outputs.Force = False,
) -> None:
    """Convert a network to another format.

    The format tsv is a folder of the challenge's files, torch a file written by
    torch.save(model.state_dict()). Options supply properties that the format of IN does not store.
    OUT is written atomically; - is standard output (onnx, torch). A store of features becomes a
    file that ends in .tsv, .npy, .npz or .mtx.

    \b
    Examples:
      gbdnn convert DIR/DNN/neuron1024 net
      gbdnn convert net files --to tsv
      gbdnn convert model.onnx net --force
      gbdnn convert X X.tsv.gz
    """  # noqa: D301 -- \b keeps the lines of the examples
    given = options.reading(
        format=from_, layers=layers, bias=bias, bias_rule=bias_rule,
        activation=activation, clip=clip, last_activation=last_activation, logits=logits or None,
        dtype=dtype,
    )  # fmt: skip
    if not (to or given or lossy) and _is_features(source, out):
        outputs.require_free(out, stored=False, force=force)
        X = io.open_features(source).matrix()
        outputs.write_features(X, out, stored=False, force=force)
        say(f"{out}: {X.nrows} inputs of {X.ncols} neurons, {X.nvals} entries", out)
        return
    form = FORMATS[to] if to else target_format(out)
    if form is STORE or not form.mark:
        outputs.require_free(out, stored=form is STORE, force=force)
    with Bar() as bar:
        bar.begin("converting")
        lost = io.convert(
            source, out, to=form.name, lossy=lossy, replace=force, progress=bar.show, **given
        )
    say(f"{out}: {form.name}" + (f", without {', '.join(lost)}" if lost else ""), out)


def _is_features(source: Path, out: Path) -> bool:
    """Return whether a store of features is to become a file."""
    is_store = os.path.exists(source / INDEX)  # noqa: PTH110 -- no error for a long name
    return is_store and out.name.lower().endswith(FEATURES) and Reader(source).kind == "features"
