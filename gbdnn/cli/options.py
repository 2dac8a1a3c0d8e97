"""Options shared by several commands."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import BadParameter, Option

from gbdnn.arrays.checks import as_bytes, as_nthreads
from gbdnn.engine import plan
from gbdnn.errors import ArgumentError
from gbdnn.io.networks import FORMATS

if TYPE_CHECKING:
    from collections.abc import Container

_ARGUMENT = re.compile(r"(^|: |[Pp]ass )([a-z_]+)=([\w.]*\w)?")
# Arguments of Python whose options have other names: the parameter of the command, the option.
_RENAMED = {"format": ("from_", "from"), "truth": ("check", "no-check"), "replace": ("force",) * 2}
_OF_CONVERT = ("format", "to", "layers", "bias_rule", "activation", "last_activation", "logits")


def size(text: str) -> int:
    """Return a number of bytes, given with or without a unit."""
    try:
        return as_bytes(text)
    except ArgumentError as err:
        raise BadParameter(str(err)) from err


def threads(number: int | None) -> int | None:
    """Return a number of threads; -1 means all cores."""
    return as_nthreads(number)


def defaults(option: str) -> str:
    """Return the formats to which an option applies, each with what its reader assumes."""
    return ", ".join(
        f"{form.name} ({'inf' if value is None else f'{value:g}' if option == 'clip' else value})"
        for form in FORMATS.values()
        if form.assumed and form.takes(option)
        for value in [getattr(form.assumed, option)]
    )


NThreads = Annotated[
    int | None, Option(callback=threads, help="Threads (of each worker, if any); -1 for all cores.")
]


def thread_counts(text: str) -> list[int | None]:
    """Return numbers of threads, separated by commas."""
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadParameter(
            f"expected integers separated by commas, such as 1,2,4, not {text!r}"
        ) from None
    return [as_nthreads(n) for n in counts]


ThreadCounts = Annotated[
    Any,
    Option(
        parser=thread_counts, metavar="N[,N...]",
        help="Threads (of each worker, if any); -1 for all cores. Several numbers: compare them.",
    ),
]  # fmt: skip
Engine = Annotated[
    plan.Engine,
    Option(
        help="auto: a cost model chooses; graphblas: of GraphBLAS's kernels; others force a kernel."
    ),
]
Memory = Annotated[
    Any,
    Option(
        parser=size, metavar="SIZE", help="Memory budget, in bytes or with a unit: 512MiB, 8GiB."
    ),
]
Inputs = Annotated[
    int | None, Option(min=1, help="Number of inputs; more than images: shifted copies, too.")
]
Layers = Annotated[
    int | None, Option(min=1, help="Read only the first layers (default: all layers).")
]
Bias = Annotated[
    float | None,
    Option(help="Bias of all neurons: tsv (default: the challenge's, else 0), matrix-market (0)."),
]
Clip = Annotated[
    float | None, Option(help=f"Upper limit of activations, or inf: {defaults('clip')}.")
]
DType = Annotated[
    Literal["FP32", "FP64"] | None, Option(help="Default: that of the network; tsv: FP32.")
]


def reading(**given: Any) -> Any:
    """Return the options that were given, as options of `gbdnn.load`."""
    return {name: value for name, value in given.items() if value is not None}


def exclusive(**given: object) -> None:
    """Raise ArgumentError if more than one of these options is given."""
    names = [f"--{name}" for name, value in given.items() if value]
    if len(names) > 1:
        raise ArgumentError(f"{names[0]} and {names[1]} are mutually exclusive")


def in_shell(message: str, parameters: Container[str]) -> str:
    """Return an error message with options of a command in place of arguments of Python."""

    def option(match: re.Match[str]) -> str:
        before, name, value = match.groups()
        parameter, spelled = _RENAMED.get(name, (name, name.replace("_", "-")))
        if parameter not in parameters and name not in _OF_CONVERT:
            return match[0]
        given = "" if value in (None, "True", "False") else f" {value}"
        where = "" if parameter in parameters else " (an option of gbdnn convert)"
        return f"{before}--{spelled}{given}{where}"

    return _ARGUMENT.sub(option, message)
