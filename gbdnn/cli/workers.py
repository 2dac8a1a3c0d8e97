"""Workers for a command: processes of this machine, a Dask scheduler's, the ranks of MPI."""

from __future__ import annotations

import multiprocessing
import sys
from concurrent.futures import Future, InvalidStateError, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from gbdnn.cli.signals import end_with, held_back
from gbdnn.cli.terminal import computed_in, counted
from gbdnn.distributed import balance
from gbdnn.distributed.stats import forms
from gbdnn.errors import ArgumentError, WorkerError
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.cli.bars import Bars
    from gbdnn.distributed import BatchStats

Workers = Annotated[int | None, Option(min=1, help="Compute in so many processes.")]
Scheduler = Annotated[
    str | None,
    Option(metavar="ADDRESS", help="Compute on the workers of a Dask scheduler, tcp://host:8786."),
]
Mpi = Annotated[
    bool,
    Option(
        "--mpi",
        help="Compute on MPI's ranks: mpiexec -n 5 python -m mpi4py.futures -m gbdnn ... --mpi",
    ),
]


@contextmanager
def executor(workers: int | None, scheduler: str | None, mpi: bool) -> Iterator[Any]:
    """Give the executor that the options name, None if there is none; at the end it is closed."""
    require_one(workers=workers is not None, scheduler=scheduler is not None, mpi=mpi)
    if workers is not None:
        with _Pool(workers) as pool:
            try:
                yield pool
            except KeyboardInterrupt:
                pool.end()
                raise
    elif scheduler is not None:
        distributed = require("distributed", "dask", "--scheduler needs Dask")
        try:
            client = distributed.Client(scheduler)
        except (OSError, ValueError) as err:
            raise WorkerError(f"--scheduler {scheduler}: cannot be reached: {err}") from err
        with client:
            yield client
    elif mpi:
        # Started by its module, it runs the command on one rank, and the tasks on the others.
        if "mpi4py.futures" not in sys.modules:
            raise ArgumentError(
                "--mpi: start it as mpiexec -n 5 python -m mpi4py.futures -m gbdnn ... --mpi, which"
                " computes on four ranks"
            )
        with require("mpi4py.futures", "mpi", "--mpi needs mpi4py").MPIPoolExecutor() as pool:
            yield pool
    else:
        yield None


def require_one(**given: bool) -> None:
    """Raise ArgumentError if more than one of these options is given."""
    names = [f"--{name}" for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise ArgumentError(f"{names[1]} beside {names[0]}: one of them")


class _Task(Future[Any]):
    """A future that may be cancelled while its worker dies: Python 3.11 would say so at length."""

    def set_exception(self, exception: BaseException | None) -> None:
        with suppress(InvalidStateError):
            super().set_exception(exception)


class _Pool(ProcessPoolExecutor):
    """Processes of this machine, which end with this one."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")  # a forked one could not use GraphBLAS
        with held_back():
            resource_tracker.ensure_running()  # at a task's submission it would let signals pass
        life, self._held = context.Pipe(duplex=False)
        super().__init__(workers, context, end_with, (life,))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        with held_back():  # a process may start
            future = super().submit(fn, *args, **kwargs)
        future.__class__ = _Task
        return future

    def end(self) -> None:
        """End the processes, whatever they do."""
        self._held.close()


class Records:
    """Records of batches, and a progress bar of them."""

    def __init__(self, bars: Bars) -> None:
        # Workers start, read weights, and are at their first batches.
        self._show = bars.add("batches", begun=True)
        self._records = list[Any]()

    def add(self, record: BatchStats) -> None:
        """Take a record."""
        self._records.append(record)
        if self._show is not None:
            self._show(record.done, record.batches)

    def __str__(self) -> str:
        if not self._records:
            return "nothing was left to compute"
        found = balance(self._records)
        seconds = found.seconds
        words = f"{counted(len(self._records), 'batch')} on {counted(len(found.workers), 'worker')}"
        if len(found.workers) == 1:
            words += f", busy for {seconds.max:.3g} s"
        else:
            words += (
                f", busy for {seconds.min:.3g} to {seconds.max:.3g} s,"
                f" imbalance {seconds.imbalance:.2f}"
            )
        return f"{words}\n{computed_in(forms(self._records), 0.0)}"
