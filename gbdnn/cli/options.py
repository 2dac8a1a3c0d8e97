"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from typer import BadParameter, Option

from gbdnn.arrays.checks import as_bytes
from gbdnn.errors import ArgumentError


def size(text: str) -> int:
    """Return a number of bytes, given with or without a unit."""
    try:
        return as_bytes(text)
    except ArgumentError as err:
        raise BadParameter(str(err)) from err


NThreads = Annotated[
    int | None, Option(min=1, help="Number of threads; of each worker, if there are workers.")
]
Engine = Annotated[
    Literal["auto", "graphblas", "fused", "sparse", "full"],
    Option(help="auto: the fastest kernel; graphblas: sparse or full; the others force one."),
]
Memory = Annotated[
    Any, Option(parser=size, metavar="SIZE", help="Working memory: bytes, 512MiB, 8GiB.")
]
Layers = Annotated[
    int | None, Option(min=1, help="Read only the first layers (default: all layers).")
]
Bias = Annotated[
    float | None,
    Option(help="tsv (default: the challenge's, 0 for other sizes), matrix-market (0)."),
]
Clip = Annotated[
    float | None,
    Option(help="Upper limit of activations, or inf: tsv (32), matrix-market, torch (inf)."),
]
DType = Annotated[
    Literal["FP32", "FP64"] | None, Option(help="Default: that of the network; tsv: FP32.")
]


def reading(**given: Any) -> Any:
    """Return the options given for reading a network, as `gbdnn.load` takes them."""
    found = {name: value for name, value in given.items() if value is not None}
    if found.get("clip") == float("inf"):
        found["clip"] = None
    return found


def exclusive(**given: object) -> None:
    """Raise ArgumentError if more than one of these options is given."""
    names = [f"--{name}" for name, value in given.items() if value]
    if len(names) > 1:
        raise ArgumentError(f"{names[0]} and {names[1]} are mutually exclusive")
