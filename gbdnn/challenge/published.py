"""Published times on the challenge's problems, with machine and source.

Times are seconds of inference on 60,000 inputs. They were measured by other authors on other
machines: `gbdnn.viz.plot_edge_rates` shows them as context, not as a comparison of programs. The
data are in ``published.toml``. ``checked`` records were compared with the original source; the
others were taken from citations.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files

_DEGREE = 32  # edges into every neuron of the challenge's networks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Time and edge rate on a challenge problem.

    Attributes
    ----------
    system : str
        Program.
    machine : str
        Processor and threads.
    source : str
        Publication.
    where : str
        Table or place in the text.
    precision : str
        Precision of the arithmetic: "FP32", "FP64" or "not stated".
    neurons, layers, inputs : int
        Size of the problem.
    edges : int
        Edges of all layers; the challenge's networks have 32 per neuron and layer.
    seconds : float
        Wall time of the inference.
    effective : bool
        Whether equal or similar inputs were computed once. The rate then includes edges that were
        not processed.
    checked : bool
        Whether the number was compared with the original source.

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
        """Inputs times edges divided by seconds."""
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
"""Times of other programs on the challenge's networks, grouped by program."""
