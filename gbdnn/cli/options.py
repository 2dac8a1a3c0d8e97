"""Options that several commands share, and those for reading a network as one record."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import typer

from gbdnn.engine.memory import MEMORY
from gbdnn.errors import ArgumentError

__all__ = [
    "Bias", "Clip", "Compress", "Dtype", "Engine", "FormatName", "From", "Given", "LastActivation",
    "Layers", "Memory", "NThreads", "Neurons", "NoClip", "Prefix", "Rule", "limit", "size",
]  # fmt: skip

_UNITS = {"": 1, **{f"{c}iB": 1 << 10 * n for n, c in enumerate("KMGT", 1)}}
_UNITS |= {"B": 1, **{f"{c}B": 1000**n for n, c in enumerate("KMGT", 1)}}

FormatName = Literal["store", "tsv", "npz", "matrix-market", "onnx", "torch"]

NThreads = Annotated[
    int | None, typer.Option(min=1, help="Number of threads (default: GraphBLAS's).")
]
Engine = Annotated[
    Literal["auto", "sparse", "full"],
    typer.Option(help="Form of the layers; auto: by estimated cost."),
]
Compress = Annotated[bool, typer.Option(help="Compute equal inputs once.")]
Memory = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Working memory: bytes, 512MiB, 8GiB (default: 512MiB)."),
]
From = Annotated[
    FormatName | None,
    typer.Option("--from", help="Format of the network (default: detected)."),
]
Neurons = Annotated[
    int | None, typer.Option(min=1, help="tsv: neurons per layer, if a folder has several sizes.")
]
Layers = Annotated[
    int | None, typer.Option(min=1, help="Number of layers, the first ones (default: all).")
]
Prefix = Annotated[
    str | None,
    typer.Option(help="npz, matrix-market: what precedes the number in the files' names."),
]
Bias = Annotated[
    float | None,
    typer.Option(help="tsv (default: the challenge's, 0 for other sizes), npz, matrix-market (0)."),
]
Rule = Annotated[
    Literal["entries", "all"] | None,
    typer.Option("--bias-rule", help="tsv (default: entries), npz, matrix-market (all)."),
]
Clip = Annotated[
    float | None,
    typer.Option(help="tsv (default: 32), npz, matrix-market, torch (no upper limit)."),
]
NoClip = Annotated[bool, typer.Option("--no-clip", help="tsv: no upper limit.")]
LastActivation = Annotated[
    Literal["relu", "identity"] | None,
    typer.Option(help="npz, matrix-market (default: relu), torch (identity)."),
]
Dtype = Annotated[
    Literal["FP32", "FP64"] | None,
    typer.Option(help="Of weights and sums (default: the network's; tsv: FP32)."),
]


@dataclass(frozen=True, kw_only=True)
class Given:
    """The options for reading a network; None where one was not given."""

    neurons: int | None = None
    layers: int | None = None
    prefix: str | None = None
    bias: float | None = None
    bias_rule: str | None = None
    clip: float | Literal["none"] | None = None
    last_activation: str | None = None
    dtype: str | None = None

    def keywords(self) -> dict[str, Any]:
        """Return the options given, but neurons and layers, as a reader's keywords."""
        given = {field.name: getattr(self, field.name) for field in fields(self)[2:]}
        return {name: None if x == "none" else x for name, x in given.items() if x is not None}

    def require_only(self, names: str, format_name: str) -> None:
        """Raise ArgumentError if an option was given that is not among `names`."""
        for field in fields(self):
            if getattr(self, field.name) is not None and field.name not in names.split():
                option = "--" + field.name.replace("_", "-")
                raise ArgumentError(f"{option} has no meaning for the format {format_name}")


def size(text: str | None) -> int:
    """Return the bytes of ``--memory``.

    Raises
    ------
    ArgumentError
        It is no number of bytes, with or without a unit.
    """
    if text is None:
        return MEMORY
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)", text.strip())
    units = {unit.lower(): factor for unit, factor in _UNITS.items()}
    if match is None or match[2].lower() not in units:
        raise ArgumentError(f"--memory {text!r}: a number of bytes, or one as 512MiB or 8GiB")
    return int(float(match[1]) * units[match[2].lower()])


def limit(clip: float | None, no_clip: bool) -> float | Literal["none"] | None:
    """Return the value of ``--clip``, "none" for ``--no-clip``, None for neither."""
    if no_clip and clip is not None:
        raise ArgumentError("--no-clip beside --clip: one of them")
    return "none" if no_clip else clip
