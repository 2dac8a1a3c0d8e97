"""Options of the command lines."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Images = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="IDX file, or folder with MNIST's training images; default: those next to the "
        "official weights, the official images, or digits.",
    ),
]
Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Official weights; default: a generated network.")
]
Inputs = Annotated[
    int | None, typer.Option(min=1, help="Default: 60,000, or all official images without MNIST.")
]
Cores = Annotated[int | None, typer.Option(min=1, help="Default: that of the machine's cores.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of what is generated.")]
Count = Annotated[int, typer.Option(min=1)]
Rounds = Annotated[int, typer.Option(min=1, help="Timed rounds.")]
AtLeast = Annotated[float, typer.Option(min=0, metavar="SECONDS", help="Time per round.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run a small problem as a test.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the results.")]
Deduplicate = Annotated[bool, typer.Option(help="Compute equal inputs only once.")]
# Numbers or words, which `numbers` and `words` read.
Several = Annotated[list[str] | None, typer.Option(help="Several by comma or repetition.")]
_SPEC = re.compile(r"\d+(x\d+)?(-\d+(x\d+)?)*@[\d.]+(,[\d.]+)?")
# Shapes and zeros of DLMC (Gale et al., "Sparse GPU Kernels for Deep Learning", SC 2020): layers of
# a transformer and the 1x1 convolutions of ResNet-50.
_ZEROS = (50, 60, 70, 80, 90, 95, 98)
_SHAPES = {
    "dlmc-transformer": ("512-512", "512-2048", "2048-512"),
    "dlmc-resnet50": (
        "64-256", "256-64", "256-128", "128-512", "512-256", "256-1024", "1024-512", "512-2048",
        "2048-512",
    ),
}  # fmt: skip
PRESETS = {
    name: [f"{shape}@{100 - zeros}" for shape in shapes for zeros in _ZEROS]
    for name, shapes in _SHAPES.items()
}


def _valid(words: list[str] | None) -> list[str]:
    specs = [spec for word in words or [] for spec in PRESETS.get(word, [word])]
    for spec in specs:
        if _SPEC.fullmatch(spec) is None:
            raise typer.BadParameter(f"{spec!r} is not as 784-512x2-10@5")
    return specs


Specs = Annotated[
    list[str] | None,
    typer.Option(
        metavar="SPEC",
        callback=_valid,
        help="Neurons (512 twice) and percentage of edges: 784-512x2-10@5; @5,100 if the last "
        "layer has another percentage. May be repeated. Shapes of DLMC: "
        "dlmc-transformer, dlmc-resnet50.",
    ),
]


def run(main: Callable[..., Any], shown: Callable[..., Any] | None = None, *without: str) -> None:
    """Run a function as a command.

    The parameters and the docstring are those of `shown`, by default `main`, `without` some names.
    A parameter that is annotated with a dataclass is given by an option for each field.
    """
    shown = shown or main
    hints = get_type_hints(shown, include_extras=True)
    parameters, groups = [], {}
    for name, parameter in signature(shown).parameters.items():
        kind = hints[name]
        if is_dataclass(kind):
            groups[name] = kind
            kinds = get_type_hints(kind, include_extras=True)
            for each in (each for each in fields(kind) if each.init):
                default = getattr(parameter.default, each.name, each.default)
                option = parameter.replace(name=each.name, default=default)
                parameters.append(option.replace(annotation=kinds[each.name]))
        elif name not in without:
            parameters.append(parameter.replace(annotation=kind))

    def command(**options: Any) -> None:
        for name, kind in groups.items():
            mine = [each.name for each in fields(kind) if each.init]
            options[name] = kind(**{each: options.pop(each) for each in mine})
        main(**options)

    parameters = [each.replace(kind=each.KEYWORD_ONLY) for each in parameters]
    command.__doc__ = shown.__doc__
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = signature(command).replace(parameters=parameters)
    typer.run(command)


def words(
    asked: Iterable[str] | None, default: Iterable[str], known: Iterable[str] | None = None
) -> list[str]:
    """Return the words of an option, by comma or repetition, each once; exit if one is unknown."""
    found = list(dict.fromkeys(word for item in asked or default for word in item.split(",")))
    for each in found:
        if known is not None and each not in known:
            raise typer.BadParameter(f"{each!r} is none of {', '.join(known)}")
    return found


def numbers(
    asked: list[str] | None, default: Iterable[float], kind: type = int, least: float = 1
) -> list[Any]:
    """Return the numbers of an option, by comma or repetition, each once, in order."""
    try:
        found = [kind(word) for word in words(asked, [])] or list(default)
    except ValueError as err:
        raise typer.BadParameter(str(err)) from err
    if min(found) < least:
        raise typer.BadParameter(f"{min(found)} is less than {least}")
    return found
