"""Published times on the challenge's problems, each with its machine and its source.

Other authors' numbers from other machines: context for `gbdnn.viz.plot_edge_rates`, no comparison
of programs. All are of 60,000 inputs through 120 layers, seconds of the inference alone.

``checked`` records were compared with the source's own text; the others are as quoted elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbdnn.engine.stats import edge_rate


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
    neurons, layers, inputs : int
        The problem.
    edges : int
        Of all layers; the challenge's networks have 32 per neuron and layer.
    seconds : float
        Wall time of the inference.
    effective : bool
        Whether equal inputs were computed once: the rate then counts edges that were not processed.
    checked : bool
        Whether the number was compared with the source's own text.
    """

    system: str
    machine: str
    source: str
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
        return edge_rate(self.inputs, self.edges, self.seconds)


_XEON = "Intel Xeon E5-2698 v4, 20 cores, 40 threads"
_DEMO = (
    "T. Davis, 'Sparse DNN Results with the MATLAB interface to SuiteSparse:GraphBLAS', 2019-2020,"
    " GraphBLAS/GraphBLAS/demo/dnn_results/dnn_summary.tex in SuiteSparse"
)
_DAVIS = (
    "T. Davis, M. Aznaveh, S. Kolodziej, 'Write Quick, Run Fast: Sparse Deep Neural Network in"
    " 20 Minutes of Development Time via SuiteSparse:GraphBLAS', HPEC 2019"
)
_ELLIS = (
    "J. A. Ellis, S. Rajamanickam, 'Scalable Inference for Sparse Deep Neural Networks using"
    " Kokkos Kernels', HPEC 2019, doi:10.1109/HPEC.2019.8916378"
)
_SIZES = (1024, 4096, 16384, 65536)
# system, machine, source, checked, seconds for each of the sizes
_TABLE = (
    ("LAGraph, SuiteSparse:GraphBLAS 3.1.0", _XEON, _DEMO, True, (2.35, 9.33, 51.01, 245.33)),
    ("LAGraph, SuiteSparse:GraphBLAS 3.2.0", _XEON, _DEMO, True, (1.4, 6.2, 35.0, 229.4)),
    ("LAGraph, at HPEC 2019", "machine as in the paper", _DAVIS, False, (2.12, 10.6, 29.7, 111.0)),
    ("KK-SpDNN, Kokkos Kernels", "Intel Skylake, 32 threads", _ELLIS, False, (2, 5.58, 29.5, 385)),
)

PUBLISHED: tuple[Rate, ...] = tuple(
    Rate(
        system=system,
        machine=machine,
        source=source,
        neurons=neurons,
        edges=120 * 32 * neurons,
        seconds=float(time),
        checked=checked,
    )
    for system, machine, source, checked, seconds in _TABLE
    for neurons, time in zip(_SIZES, seconds, strict=True)
)
"""Times of LAGraph and KK-SpDNN, on one machine each."""
