"""Published times on the challenge's problems, each with its machine and its source.

They are other people's numbers from other machines: a background for `gbdnn.viz.plot_edge_rates`,
no comparison of programs. All are of 60,000 inputs through 120 layers, the seconds of the inference
alone.

A record is *checked* where its numbers were compared with the source's own text when it was put
here. The others are as they are quoted elsewhere, and plots say so.
"""

from __future__ import annotations

from dataclasses import dataclass

from gbdnn.engine.stats import edge_rate

__all__ = ["PUBLISHED", "Rate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A time on a problem of the challenge, and the edge rate that follows from it.

    Attributes
    ----------
    system : str
        The program.
    machine : str
        Processor and threads.
    source : str
        Where the number is from.
    neurons, layers, inputs : int
        The problem.
    edges : int
        Of all layers; 32 for each neuron of each layer in the challenge's networks.
    seconds : float
        Wall time of the inference.
    effective : bool
        Whether equal inputs went on as one: the rate then counts edges nobody processed.
    checked : bool
        Whether the number was compared with the source itself.
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


def _rates(
    system: str, machine: str, source: str, seconds: dict[int, float], *, checked: bool
) -> tuple[Rate, ...]:
    """Return a record per number of neurons."""
    return tuple(
        Rate(
            system=system,
            machine=machine,
            source=source,
            neurons=neurons,
            edges=120 * 32 * neurons,
            seconds=time,
            checked=checked,
        )
        for neurons, time in seconds.items()
    )


_DAVIS = (
    "T. Davis, 'Sparse DNN Results with the MATLAB interface to SuiteSparse:GraphBLAS', 2019-2020,"
    " GraphBLAS/GraphBLAS/demo/dnn_results/dnn_summary.tex in SuiteSparse"
)

PUBLISHED: tuple[Rate, ...] = (
    *_rates(
        "LAGraph, SuiteSparse:GraphBLAS 3.1.0",
        "Intel Xeon E5-2698 v4, 20 cores, 40 threads",
        _DAVIS,
        {1024: 2.35, 4096: 9.33, 16384: 51.01, 65536: 245.33},
        checked=True,
    ),
    *_rates(
        "LAGraph, SuiteSparse:GraphBLAS 3.2.0",
        "Intel Xeon E5-2698 v4, 20 cores, 40 threads",
        _DAVIS,
        {1024: 1.4, 4096: 6.2, 16384: 35.0, 65536: 229.4},
        checked=True,
    ),
    *_rates(
        "LAGraph, at HPEC 2019",
        "machine as in the paper",
        "T. Davis, M. Aznaveh, S. Kolodziej, 'Write Quick, Run Fast: Sparse Deep Neural Network in"
        " 20 Minutes of Development Time via SuiteSparse:GraphBLAS', HPEC 2019",
        {1024: 2.12, 4096: 10.6, 16384: 29.7, 65536: 111.0},
        checked=False,
    ),
    *_rates(
        "KK-SpDNN, Kokkos Kernels",
        "Intel Skylake, 32 threads",
        "J. A. Ellis, S. Rajamanickam, 'Scalable Inference for Sparse Deep Neural Networks using"
        " Kokkos Kernels', HPEC 2019, doi:10.1109/HPEC.2019.8916378",
        {1024: 2.00, 4096: 5.58, 16384: 29.5, 65536: 385.0},
        checked=False,
    ),
)
"""Times of LAGraph and KK-SpDNN, on one machine each."""
