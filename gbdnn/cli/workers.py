"""Workers of a command: local processes, a Dask cluster or MPI ranks."""

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

Workers = Annotated[int | None, Option(min=1, help="Number of worker processes.")]
Scheduler = Annotated[
    str | None, Option(metavar="ADDRESS", help="Compute on a Dask cluster: tcp://host:8786.")
]
Mpi = Annotated[bool, Option("--mpi", help=f"Compute on MPI ranks: {_MPI}")]


@contextmanager
def executor(workers: int | None, scheduler: str | None, mpi: bool) -> Iterator[Any]:
    """Yield the executor for these options, or None, and close it afterwards."""
    if workers is not None:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, context, _end_with_parent) as pool:
            try:
                yield pool
            except BaseException:
                # Nobody will read the tasks: do not wait until they are written. The thread that
                # would see to it dies of the first cancelled future, and there is no public way.
                pool._call_queue.cancel_join_thread()  # type: ignore[attr-defined]
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
            raise ArgumentError(f"--mpi requires the command {_MPI}")
        with require("mpi4py.futures", "mpi", "--mpi needs mpi4py").MPIPoolExecutor() as pool:
            yield pool
    else:
        yield None


def _end_with_parent() -> None:
    """Make a worker ignore Ctrl-C, which the command handles, and exit with the command."""
    for number in (signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):  # not on Windows
        signal.signal(number, signal.SIG_IGN)

    def wait() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        signal.raise_signal(getattr(signal, "SIGKILL", signal.SIGTERM))

    threading.Thread(target=wait, daemon=True).start()


def summary(records: Sequence[BatchStats]) -> str:
    """Return the number of batches and the balance of the workers."""
    if not records:
        return "no batches left to compute"
    load = balance(records)
    seconds = load.seconds
    return (
        f"workers: {len(load.workers)}, batches: {len(records)}, busy for {seconds.min:.3g} to"
        f" {seconds.max:.3g} s, imbalance {seconds.imbalance:.2f}"
    )
