"""Workers of a command: processes of this machine, a Dask cluster, or the ranks of MPI."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gbdnn.distributed import balance
from gbdnn.errors import ArgumentError, WorkerError
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbdnn.distributed import BatchStats

_MPI = "mpiexec -n 5 python -m mpi4py.futures -m gbdnn ... --mpi"

Workers = Annotated[int | None, Option(min=1, help="Compute in this number of processes.")]
Scheduler = Annotated[
    str | None, Option(metavar="ADDRESS", help="Compute on a Dask cluster, tcp://host:8786.")
]
Mpi = Annotated[bool, Option("--mpi", help=f"Compute on the ranks of MPI: {_MPI}")]


@contextmanager
def executor(workers: int | None, scheduler: str | None, mpi: bool) -> Iterator[Any]:
    """Yield the executor that the options describe, or None, and close it afterwards."""
    if workers is not None:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
            try:
                yield pool
            except BaseException:
                for process in multiprocessing.active_children():
                    process.kill()
                raise
    elif scheduler is not None:
        distributed = require("distributed", "dask", "--scheduler needs Dask")
        try:
            client = distributed.Client(scheduler)
        except (OSError, ValueError) as err:
            raise WorkerError(f"--scheduler {scheduler}: cannot connect: {err}") from err
        with client:
            yield client
    elif mpi:
        if "mpi4py.futures" not in sys.modules:
            raise ArgumentError(f"--mpi needs to be started as {_MPI}")
        with require("mpi4py.futures", "mpi", "--mpi needs mpi4py").MPIPoolExecutor() as pool:
            yield pool
    else:
        yield None


def _end_with_parent() -> None:
    """Make a worker ignore Ctrl-C, which its command handles, and end when the command ends."""
    for each in (signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)

    def wait() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        signal.raise_signal(signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def summary(records: Sequence[BatchStats]) -> str:
    """Return how many batches the workers computed, and how evenly."""
    if not records:
        return "no batches were left to compute"
    found = balance(records)
    seconds = found.seconds
    return (
        f"workers: {len(found.workers)}, batches: {len(records)}, busy for {seconds.min:.3g} to"
        f" {seconds.max:.3g} s, imbalance {seconds.imbalance:.2f}"
    )
