"""Executors as gbdnn uses them: `submit`, the number of workers, and whether they share memory.

Nothing here imports an engine: they are known by what they offer. A ``dask.distributed.Client``
becomes an executor by its own ``get_executor``.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

from gbdnn.arrays.checks import as_word, whole_number
from gbdnn.distributed.executors.batches import LATE
from gbdnn.errors import ArgumentError, ArgumentTypeError, ForkError, WorkerError
from gbdnn.runtime.cores import cores
from gbdnn.runtime.threads import available

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Workers", "here", "workers_of"]

_ADAPTIVE = 16  # workers of a cluster that may have any number of them


class Workers:
    """The workers of an executor, and how they get batches: what ``executor=`` takes.

    An executor, or a Dask client, will do where nothing else is to be said.

    Parameters
    ----------
    executor : concurrent.futures.Executor or dask.distributed.Client
        Whose workers compute. A pool that forks is refused: its processes might wait for
        GraphBLAS's threads for ever.
    count : int, optional
        How many workers it has, where it does not tell.
    ahead : int, optional
        The most batches that are in flight at a time (default: 2 a worker).
    wait_for : int, optional
        Of a Dask client: wait until so many workers are there.
    order : {"given", "hashed"}, default "given"
        Whether a batch of `infer` has inputs that follow each other, or inputs dealt by a hash of
        their numbers, which spreads neighbours that live long. The answer has the given order in
        either case. With ``"hashed"`` all of a store of features is read for every batch, which
        warns if it has more than 4 million values: deal the inputs of such a store once, as it is
        written.

    Attributes
    ----------
    submit : callable
        The executor's.
    ahead : int or None
        As given.
    shares_memory : bool
        Whether they are threads of this process.
    is_caller : bool
        Whether the only one is the caller itself.
    is_hashed : bool
        Whether inputs are dealt by a hash.

    Raises
    ------
    ArgumentTypeError
        The executor has no `submit`, or is a class.
    ArgumentError
        It does not tell how many workers it has, and `count` is not given; or a value has no
        meaning.
    ForkError
        Its processes are forked.
    WorkerError
        A Dask client whose scheduler does not answer.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import numpy as np, gbdnn
    >>> with ThreadPoolExecutor(2) as pool:
    ...     workers = gbdnn.distributed.Workers(pool, ahead=3, order="hashed")
    ...     Y = gbdnn.infer([np.eye(3)], np.eye(3), executor=workers, batch=1)
    >>> workers.count, Y.nvals
    (2, 3)
    """

    def __init__(
        self,
        executor: Any,
        *,
        count: int | None = None,
        ahead: int | None = None,
        wait_for: int | None = None,
        order: Literal["given", "hashed"] = "given",
    ) -> None:
        is_class, self._is_dask = isinstance(executor, type), hasattr(executor, "get_executor")
        if is_class or not (self._is_dask or callable(getattr(executor, "submit", None))):
            kind = executor if is_class else type(executor)
            raise ArgumentTypeError(
                "executor: a concurrent.futures.Executor, a dask.distributed.Client or a"
                " gbdnn.distributed.Workers is needed, not"
                f" {'the class ' * is_class}{kind.__module__}.{kind.__qualname__}"
            )
        for what, value in (("count", count), ("ahead", ahead), ("wait_for", wait_for)):
            if value is not None:
                whole_number(value, what, least=1)
        self._executor, self._count, self.ahead = executor, count, ahead
        self.is_hashed = as_word(order, "order", ("given", "hashed")) == "hashed"
        self.is_caller = isinstance(executor, _Inline)
        self.shares_memory = self.is_caller or isinstance(executor, ThreadPoolExecutor)
        _require_unforked(executor)
        self.submit = (executor.get_executor(pure=False) if self._is_dask else executor).submit
        if wait_for is not None:
            if not self._is_dask:
                raise ArgumentError(
                    "wait_for: is for a Dask client; other executors have their workers"
                )
            executor.wait_for_workers(wait_for)
        _ = self.count  # whether it tells

    @property
    def count(self) -> int:
        """How many tasks run at a time: now, for workers that come and go."""
        if self._count is not None:
            return self._count
        if self._is_dask:
            return _dask_threads(self._executor)
        count = getattr(self._executor, "_max_workers", None)
        if not isinstance(count, int) or count < 1:
            raise ArgumentError(
                f"executor: {type(self._executor).__qualname__} does not tell how many workers it"
                " has: give gbdnn.distributed.Workers(executor, count=)"
            )
        return count

    @property
    def asked(self) -> int:
        """How many tasks run at a time when all workers that a Dask cluster is to have are there.

        Of one that adapts to its load these are the most that it may have.
        """
        cluster = getattr(self._executor, "cluster", None) if self._is_dask else None
        if cluster is None or self._count is not None:
            return self.count
        most = getattr(getattr(cluster, "_adaptive", None), "maximum", 0)
        workers = max(len(cluster.plan), int(most) if math.isfinite(most) else _ADAPTIVE)
        threads = max(self._executor.nthreads().values(), default=1)
        return max(self.count, workers * threads)

    def expected(self, inputs: int) -> int:
        """For how many workers so many inputs are cut: of Dask's, some may come later.

        Batches for them have no fewer inputs than take their time in any case.
        """
        late = inputs // LATE if self._is_dask and self._count is None else 0
        return max(self.asked, late)

    @property
    def are_processes_here(self) -> bool:
        """Whether they are processes of this machine, for all that is known."""
        return not self.shares_memory and _start_method(self._executor) is not None

    @property
    def nthreads(self) -> int:
        """Threads of a task, unless the call says.

        This machine's cores over its workers; 1 where workers may be on other machines.
        """
        if self.is_caller:
            return available()
        on_this_machine = self.shares_memory or self.are_processes_here
        return max(1, cores() // self.count) if on_this_machine else 1


def workers_of(executor: Any) -> Workers:
    """Return the workers of what a caller gave as executor."""
    return executor if isinstance(executor, Workers) else Workers(executor)


def here() -> Workers:
    """Return the caller itself as the only worker: a task is computed when it is submitted."""
    return Workers(_Inline(), count=1, ahead=1)


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
