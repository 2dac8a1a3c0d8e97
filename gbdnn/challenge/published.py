"""Published times on the challenge's problems, each with its machine and its source.

Other authors' numbers from other machines: context for `gbdnn.viz.plot_edge_rates`, no comparison
of programs. All are of 60,000 inputs, seconds of the inference alone. The numbers stand in
``published.toml``, beside this module.

``checked`` records were compared with the source's own text; the others are as quoted elsewhere.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files

_DEGREE = 32  # edges into every neuron of the challenge's networks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A time on a challenge problem, and its edge rate.

    Attributes
    ----------
    system : str
        The program.
    machine : str
        Processor and threads.
    source : str
        The publication.
    where : str
        The table, or the place in the text.
    precision : str
        Of the arithmetic: "FP32", "FP64", or "not stated".
    neurons, layers, inputs : int
        The problem.
    edges : int
        Of all layers; the challenge's networks have 32 per neuron and layer.
    seconds : float
        Wall time of the inference.
    effective : bool
        Whether equal or similar inputs were computed once: the rate then counts edges that were
        not processed.
    checked : bool
        Whether the number was compared with the source's own text.

    Examples
    --------
    >>> from gbdnn import challenge
    >>> rate = challenge.Rate(
    ...     system="mine", machine="2 cores", source="measured",
    ...     neurons=1024, edges=3_932_160, seconds=0.5,
    ... )
    >>> f"{rate.edges_per_second:.2e}"
    '4.72e+11'
    """

    system: str
    machine: str
    source: str
    where: str = ""
    precision: str = "not stated"
    neurons: int
    layers: int = 120
    inputs: int = 60_000
    edges: int
    seconds: float
    effective: bool = False
    checked: bool = True

    @property
    def edges_per_second(self) -> float:
        """Inputs times edges over seconds."""
        return self.inputs * self.edges / self.seconds


_FOUND = tomllib.loads(files(__package__).joinpath("published.toml").read_text(encoding="utf-8"))

PUBLISHED: tuple[Rate, ...] = tuple(
    Rate(
        system=system["name"],
        machine=system["machine"],
        source=_FOUND["sources"][system["source"]],
        where=system["where"],
        precision=system["precision"],
        effective=system.get("effective", False),
        checked=system.get("checked", True),
        neurons=int(neurons),
        layers=int(layers),
        edges=_DEGREE * int(neurons) * int(layers),
        seconds=float(seconds),
    )
    for system in _FOUND["systems"]
    for neurons, by_layers in system["seconds"].items()
    for layers, seconds in by_layers.items()
)
"""Times of other programs on the challenge's networks, each program's together."""
