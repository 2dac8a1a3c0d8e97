"""Outputs of commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

Force = Annotated[bool, Option("--force", help="Replace an existing store or file.")]
To = Annotated[
    Literal["store", "tsv", "npy", "npz", "matrix-market"] | None,
    Option("--to", help="Format of OUT (default: that of its suffix, else store)."),
]


def named(path: Path | None) -> Path | None:
    """Return the path of an output; ``-`` is standard output."""
    return Path("/dev/stdout") if path == Path("-") else path
