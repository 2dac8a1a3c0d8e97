"""Published times on the challenge's problems, with machine and source.

Seconds of inference on 60,000 inputs, measured by other authors on other machines: context, not a
comparison of programs. The data are in ``benchmarks/published.toml``.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

PATH = Path(__file__).parents[1] / "benchmarks/published.toml"


class Rate(NamedTuple):
    """Time of a program on one problem, with the place in its source."""

    system: str
    machine: str
    source: str
    where: str
    precision: str
    effective: bool
    """Whether equal or similar inputs were computed once."""
    neurons: int
    layers: int
    seconds: float


FOUND = tomllib.loads(PATH.read_text(encoding="utf-8"))

PUBLISHED = tuple(
    Rate(
        system["name"], system["machine"], FOUND["sources"][system["source"]], system["where"],
        system["precision"], system.get("effective", False), int(neurons), int(layers), seconds,
    )
    for system in FOUND["systems"]
    for neurons, by_layers in system["seconds"].items()
    for layers, seconds in by_layers.items()
)  # fmt: skip
