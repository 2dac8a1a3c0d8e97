"""Options that several commands have, with one meaning each."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from gbdnn.engine.memory import MEMORY
from gbdnn.errors import ArgumentError

__all__ = [
    "Bias",
    "Clip",
    "Compress",
    "Dtype",
    "Engine",
    "LastActivation",
    "Layers",
    "Memory",
    "NThreads",
    "Neurons",
    "NoClip",
    "Prefix",
    "Rule",
    "limit",
    "size",
]

_UNITS = {"": 1, **{f"{c}iB": 1 << 10 * n for n, c in enumerate("KMGT", 1)}}
_UNITS |= {"B": 1, **{f"{c}B": 1000**n for n, c in enumerate("KMGT", 1)}}

NThreads = Annotated[
    int | None, typer.Option(min=1, help="Threads; GraphBLAS's default without it.")
]
Engine = Annotated[
    Literal["auto", "sparse", "full"],
    typer.Option(help="Form of the layers; auto takes the cheaper one."),
]
Compress = Annotated[bool, typer.Option(help="Inputs that have become equal go on as one.")]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="To work in: bytes, 512MiB, 8GiB; 512MiB without it."),
]
Neurons = Annotated[
    int | None, typer.Option(min=1, help="tsv: neurons per layer, if a folder has several sizes.")
]
Layers = Annotated[int | None, typer.Option(min=1, help="The first so many; all without it.")]
Prefix = Annotated[
    str | None,
    typer.Option(help="npz, matrix-market: what comes before the number in the files' names."),
]
Bias = Annotated[
    float | None,
    typer.Option(help="tsv: the challenge's for its sizes without it; npz, matrix-market; or 0."),
]
Rule = Annotated[
    Literal["entries", "all"] | None,
    typer.Option("--bias-rule", help="tsv: entries without it; npz, matrix-market: all."),
]
Clip = Annotated[
    float | None,
    typer.Option(help="tsv: 32 without it; npz, matrix-market, torch: no upper limit."),
]
NoClip = Annotated[bool, typer.Option("--no-clip", help="tsv: no upper limit.")]
LastActivation = Annotated[
    Literal["relu", "identity"] | None,
    typer.Option(help="npz, matrix-market: relu without it; torch: identity."),
]
Dtype = Annotated[
    Literal["FP32", "FP64"] | None,
    typer.Option(help="Of weights and sums; tsv: FP32 without it, others have their own."),
]


def size(text: str | None) -> int:
    """Return the bytes that ``--memory`` says.

    Raises
    ------
    ArgumentError
        It is not a number with a unit of bytes.
    """
    if text is None:
        return MEMORY
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)", text.strip())
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if match is None or match[2].lower() not in units:
        raise ArgumentError(f"--memory {text!r}: a number of bytes, or one as 512MiB or 8GiB")
    return int(float(match[1]) * units[match[2].lower()])


def limit(clip: float | None, no_clip: bool) -> float | Literal["none"] | None:
    """Return what ``--clip`` and ``--no-clip`` say together; None if neither is given."""
    if no_clip and clip is not None:
        raise ArgumentError("--no-clip beside --clip: one of them")
    return "none" if no_clip else clip
