"""The workers of an executor: how many there are, and whether they share memory with the caller.

This module imports no engine. A ``dask.distributed.Client`` becomes an executor by its own
``get_executor``.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from gbdnn.arrays.checks import as_word, require_callable, whole_number
from gbdnn.errors import ArgumentError, ArgumentTypeError, ForkError, WorkerError
from gbdnn.runtime.cores import cores
from gbdnn.runtime.first_use import shown
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.distributed.stats import BatchStats

_log = logging.getLogger("gbdnn.distributed")

__all__ = ["Workers", "here", "workers_of"]


class Workers:
    """An executor with options; ``executor=`` takes it in place of the executor.

    Pass an executor or a Dask client directly if the defaults suit you.

    Parameters
    ----------
    executor : concurrent.futures.Executor or dask.distributed.Client
        Runs the batches. A process pool that forks is refused: its workers might deadlock in
        GraphBLAS.
    count : int, optional
        Number of workers. Needed if the executor does not report it, and for a Dask cluster whose
        workers start later: by default gbdnn asks the scheduler for the present number.
    ahead : int, optional
        Maximum number of batches in flight (default: 2 per worker).
    order : {"given", "hashed"}, default "given"
        Whether a batch of `infer` holds consecutive inputs, or inputs chosen by a hash of their
        numbers, which balances the work if neighbouring inputs are similar. The answer is in the
        given order. With ``"hashed"`` the caller holds all features in memory.
    batch_size : int, optional
        Minimum number of inputs of a batch of `infer` (default: up to four batches per worker, of
        at least 2,048 inputs), or of a part of `infer_to_store`, unless its `batch_size` is given.
    callback : callable, optional
        Called with a `BatchStats` for each finished batch.

    Attributes
    ----------
    count : int
        Number of workers.
    ahead, batch_size, callback
        As given.
    shares_memory : bool
        Whether the workers are threads of this process.
    is_hashed : bool
        Whether `order` is ``"hashed"``.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        An option is invalid, or the number of workers is unknown.
    ForkError, WorkerError
        The executor's processes are forked; the Dask client is closed.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> with ThreadPoolExecutor(2) as pool:
    ...     records = []
    ...     workers = gbdnn.distributed.Workers(pool, batch_size=1, callback=records.append)
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=workers)
    >>> workers.count, Y.nvals, len(records)
    (2, 3, 3)
    """

    def __init__(
        self,
        executor: Any,
        *,
        count: int | None = None,
        ahead: int | None = None,
        order: Literal["given", "hashed"] = "given",
        batch_size: int | None = None,
        callback: Callable[[BatchStats], object] | None = None,
    ) -> None:
        if isinstance(executor, type) or not callable(getattr(executor, "submit", None)):
            raise ArgumentTypeError(
                "executor must be a concurrent.futures.Executor, a dask.distributed.Client or a"
                f" gbdnn.distributed.Workers, not {shown(executor)}"
            )
        require_callable(callback, "callback")
        for what, value in (("count", count), ("ahead", ahead), ("batch_size", batch_size)):
            if value is not None:
                whole_number(value, what, least=1)
        self.is_hashed = as_word(order, "order", ("given", "hashed")) == "hashed"
        if getattr(executor, "asynchronous", False):
            raise ArgumentError(
                "an asynchronous Dask client is not supported; pass Client(asynchronous=False)"
            )
        if _start_method(executor) == "fork":
            raise ForkError(
                f"the processes of this {type(executor).__qualname__} are forked and might deadlock"
                " in GraphBLAS; use ProcessPoolExecutor(...,"
                " mp_context=multiprocessing.get_context('spawn'))"
            )
        self._executor, self._count, self.ahead = executor, count, ahead
        self.batch_size, self.callback = batch_size, callback
        self.is_dask = hasattr(executor, "get_executor")
        self.is_caller = isinstance(executor, _Inline)
        self.shares_memory = self.is_caller or isinstance(executor, ThreadPoolExecutor)
        self.submit = (executor.get_executor(pure=False) if self.is_dask else executor).submit
        _ = self.count  # raises an error if it is unknown

    @property
    def count(self) -> int:
        """Number of workers; for Dask, threads of the workers that are connected now."""
        if self._count is not None:
            return self._count
        if self.is_dask:
            if self._executor.status != "running":
                raise WorkerError(f"the Dask client is {self._executor.status}")
            return max(1, sum(self._executor.nthreads().values()))
        # The standard library, loky and mpi4py have no public name for it.
        count = getattr(self._executor, "_max_workers", None)
        if not isinstance(count, int) or count < 1:
            raise ArgumentError(
                f"the number of workers of {type(self._executor).__qualname__} is unknown; pass"
                " executor=gbdnn.distributed.Workers(executor, count=...)"
            )
        return count

    def report_absence(self) -> None:
        """Log a warning if a Dask cluster has no workers."""
        if self.is_dask and self._executor.status == "running" and not self._executor.nthreads():
            _log.warning("waiting for workers: the Dask cluster has none")

    @property
    def are_processes_here(self) -> bool:
        """Whether they are known to be processes of this machine."""
        return not self.shares_memory and _start_method(self._executor) is not None

    @property
    def nthreads(self) -> int:
        """Default number of threads per worker: this machine's cores divided by the workers.

        It is 1 if the workers may be on other machines.
        """
        if self.is_caller:
            return available()
        on_this_machine = self.shares_memory or self.are_processes_here
        return max(1, cores() // self.count) if on_this_machine else 1


def workers_of(executor: Any) -> Workers:
    """Return the workers of an ``executor=`` argument."""
    return executor if isinstance(executor, Workers) else Workers(executor)


def here() -> Workers:
    """Return the caller as the only worker, which computes a task when it is submitted."""
    return Workers(_Inline(), count=1, ahead=1)


class _Inline(Executor):
    """An executor that runs a task when it is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as err:
            future.set_exception(err)
        try:
            return future
        finally:
            del future  # the traceback of its error refers to this frame


def _start_method(executor: Any) -> str | None:
    """Return how the executor starts processes, None if unknown; there is no public attribute."""
    for name in ("_mp_context", "_context"):  # of the standard library, of loky
        method = getattr(getattr(executor, name, None), "get_start_method", None)
        if method is not None:
            return str(method())
    return None
