"""Executors as gbdnn uses them: `submit`, the number of workers, and whether they share memory.

Nothing here imports an engine: they are known by what they offer. A ``dask.distributed.Client``
becomes an executor by its own ``get_executor``.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.cores import cores
from gbdnn.arrays.values import whole_number
from gbdnn.errors import ArgumentError, ArgumentTypeError, ForkError, WorkerError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Workers", "here", "workers_of"]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of an executor.

    Attributes
    ----------
    submit : callable
        The executor's.
    counted : callable
        Returns how many tasks run at a time: now, for workers that come and go.
    shares_memory : bool
        Whether they are threads of this process.
    nthreads : int
        Threads of a task, unless the caller says: this machine's cores over its workers; 1 where
        workers may be on other machines.
    is_caller : bool
        Whether there is one, and it is the caller itself.
    """

    submit: Callable[..., Future[Any]]
    counted: Callable[[], int]
    shares_memory: bool
    nthreads: int
    is_caller: bool = False

    @property
    def count(self) -> int:
        """How many tasks run at a time."""
        return self.counted()


def workers_of(executor: Any, workers: int | None) -> Workers:
    """Return the workers of what a caller gave as executor.

    Raises
    ------
    ArgumentTypeError
        It has no `submit`, or is a class.
    ArgumentError
        It does not tell how many workers it has, and neither does the caller.
    ForkError
        Its processes are forked.
    WorkerError
        A Dask client whose scheduler does not answer.
    """
    if workers is not None:
        workers = whole_number(workers, "workers", least=1)
    is_class, is_dask = isinstance(executor, type), hasattr(executor, "get_executor")
    if is_class or not (is_dask or callable(getattr(executor, "submit", None))):
        kind = executor if is_class else type(executor)
        raise ArgumentTypeError(
            "executor: a concurrent.futures.Executor or a dask.distributed.Client is needed, not"
            f" {'the class ' * is_class}{kind.__module__}.{kind.__qualname__}"
        )
    if is_dask:
        found = Workers(
            executor.get_executor(pure=False).submit,
            lambda: workers or _dask_threads(executor),
            shares_memory=False,
            nthreads=1,
        )
        found.counted()  # whether it answers
        return found
    _require_unforked(executor)
    count = workers or getattr(executor, "_max_workers", None)
    if not isinstance(count, int) or count < 1:
        raise ArgumentError(
            f"executor: {type(executor).__qualname__} does not tell how many workers it has: give"
            " workers="
        )
    on_this_machine = _start_method(executor) is not None
    shares = isinstance(executor, ThreadPoolExecutor)
    nthreads = max(1, cores() // count) if on_this_machine or shares else 1
    return Workers(executor.submit, lambda: count, shares, nthreads)


def here(nthreads: int) -> Workers:
    """Return the caller itself as the only worker: a task is computed when it is submitted."""
    return Workers(_Inline().submit, lambda: 1, True, nthreads, is_caller=True)


def _dask_threads(client: Any) -> int:
    """Return the threads of all workers that a Dask client's scheduler has now, at least 1."""
    try:
        return max(1, sum(client.nthreads().values()))
    except Exception as err:  # of a closed client an AttributeError
        raise WorkerError(f"executor: Dask's scheduler does not answer: {err}") from err


class _Inline(Executor):
    """An executor that runs a task where it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as err:
            future.set_exception(err)
        return future


def _start_method(executor: Any) -> str | None:
    """Return how the executor's processes are started, None if that is not known."""
    for name in ("_mp_context", "_context"):  # of the standard library, of loky
        method = getattr(getattr(executor, name, None), "get_start_method", None)
        if method is not None:
            return str(method())
    return None


def _require_unforked(executor: Any) -> None:
    if _start_method(executor) == "fork":
        raise ForkError(
            f"executor: the processes of this {type(executor).__qualname__} are forked, and may"
            " wait for GraphBLAS's threads for ever: ProcessPoolExecutor(...,"
            " mp_context=multiprocessing.get_context('spawn'))"
        )
