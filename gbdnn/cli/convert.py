"""``gbdnn convert``: convert networks and features between formats."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from gbdnn import io
from gbdnn.cli import options, outputs
from gbdnn.cli.terminal import Bar, say
from gbdnn.io.formats import FEATURES
from gbdnn.io.networks import FORMATS

if TYPE_CHECKING:
    Name = str
    Target = str
else:  # a type from whose values typer makes completions, help and errors
    Name = Enum("Name", {name: name for name in FORMATS}, type=str)
    Target = Enum("Target", {name: name for name in FORMATS | FEATURES}, type=str)


def convert(
    source: Annotated[Path, Argument(metavar="IN", help="Network or features.")],
    out: Annotated[
        Path,
        Argument(metavar="OUT", callback=outputs.named, help="A store, a file, a folder or -."),
    ],
    from_: Annotated[
        Name | None, Option("--from", help="Format of IN (default: detected).")
    ] = None,
    to: Annotated[
        Target | None, Option(help="Format of OUT (default: from its suffix, else store).")
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
    """Convert a network or features to another format.

    The format tsv is a folder of the challenge's files, torch a file written by
    torch.save(model.state_dict()). Options supply properties that the format of IN does not store.
    OUT is written atomically; - is standard output (onnx, torch).

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
    with Bar() as bar:
        bar.begin("converting")
        lost = io.convert(
            source, out, to=to, lossy=lossy, replace=force, progress=bar.show, **given
        )
    say(f"{out}: written" + (f", without {', '.join(lost)}" if lost else ""), out)
