"""Tasks through an executor: few in flight, their answers in turn, and none left behind.

At most `ahead` tasks are in flight, so that memory is bounded however many batches there are. When
a batch fails, the caller is interrupted or stops asking, all other tasks are cancelled; those that
run come to their end, and the executor can be used again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import warnings
from concurrent.futures import BrokenExecutor, CancelledError, Future
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from gbdnn.distributed.executors.worker import compute
from gbdnn.distributed.stats import BatchStats
from gbdnn.errors import GbdnnError, WorkerError, prefix, require_kind
from gbdnn.runtime.cores import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gbdnn.distributed.executors.worker import BatchResult, Task
    from gbdnn.distributed.executors.workers import Workers

__all__ = ["computed"]

AHEAD = 2
"""Tasks in flight per worker, by default: one that is computed, and one that has arrived."""

_AGAIN = 0.5  # seconds until workers are counted again
_ENGINES = ("dask", "distributed", "ray", "parsl")  # whose own errors are of workers


def computed(
    workers: Workers,
    tasks: Iterator[Task],
    *,
    in_order: bool,
    batches: int | None,
    stats: Callable[[BatchStats], object] | None,
    advice: str,
) -> Iterator[tuple[Task, BatchResult]]:
    """Yield tasks with their results, in the tasks' order or as they are done.

    Parameters
    ----------
    workers : Workers
        Who computes; at most their `ahead` tasks are in flight, `AHEAD` per worker by default.
    tasks : iterator of Task
        Asked for one when it can be submitted. If it raises, that is raised when the answers of
        all tasks before have been taken.
    in_order : bool
        Whether a result waits for those of the tasks before it, and counts as in flight until then.
    batches : int, optional
        How many there are.
    stats : callable, optional
        Called with a `BatchStats` for each result.
    advice : str
        What a WorkerError says of how to go on.
    """
    flight: dict[Future[BatchResult], Task] = {}
    # `concurrent.futures.wait` waits for ever for futures that a shutdown has cancelled.
    finished: SimpleQueue[Future[BatchResult]] = SimpleQueue()
    failure: Exception | None = None
    threads = _Threads()
    done = 0
    more = True
    try:
        while more or flight:
            # Workers come and go: they are counted at each submission.
            count = workers.count if in_order else workers.asked
            while more and len(flight) < (workers.ahead or AHEAD * count):
                try:
                    task = next(tasks)
                except StopIteration:
                    more = False
                except Exception as err:
                    more, failure = False, err
                else:
                    future = _submitted(
                        workers, replace(task, is_told=stats is not None), done, advice
                    )
                    flight[future] = task
                    if not in_order:
                        future.add_done_callback(finished.put)
            if not flight:
                break
            try:
                future = next(iter(flight)) if in_order else finished.get(timeout=_AGAIN)
            except Empty:
                continue  # other workers may be there
            task = flight.pop(future)
            result = _result(future, task, done, advice)
            done += 1
            threads.check(result)
            if stats is not None:
                stats(_record(task, result, done, batches))
            yield task, result
        if failure is not None:
            raise failure
    finally:
        for future in flight:
            future.cancel()


def _submitted(workers: Workers, task: Task, done: int, advice: str) -> Future[BatchResult]:
    try:
        future = workers.submit(compute, task)
    except Exception as err:
        # BrokenExecutor is a RuntimeError, and so is what comes after a shutdown.
        if not isinstance(err, RuntimeError) and not _is_of_engine(err):
            raise
        raise WorkerError(
            f"batch {task.batch}: the executor takes no task: {err}; {done} batches were done."
            f" {advice}"
        ) from err
    require_kind(future, Future, "executor: its submit returns a concurrent.futures.Future")
    return future


def _result(future: Future[BatchResult], task: Task, done: int, advice: str) -> BatchResult:
    """Return what a worker answered, or raise what it raised, with the number of the batch."""
    try:
        return future.result()
    except (Exception, CancelledError) as err:
        if _is_of_engine(err) or isinstance(err, BrokenExecutor | CancelledError):
            happened = "it was cancelled" if isinstance(err, CancelledError) else "a worker died"
            reason = ": ".join(filter(None, [type(err).__name__, str(err)]))
            raise WorkerError(
                f"batch {task.batch}: {happened} ({reason}); {done} batches were done. {advice}"
            ) from err
        if isinstance(err, GbdnnError):
            prefix(err, f"batch {task.batch}")
        else:
            err.add_note(f"gbdnn: in batch {task.batch}")
        raise


def _is_of_engine(err: BaseException) -> bool:
    """Whether an error is an engine's own, and not what a task has raised in other clothes."""
    return type(err).__module__.partition(".")[0] in _ENGINES and not isinstance(err, GbdnnError)


def _record(task: Task, result: BatchResult, done: int, batches: int | None) -> BatchStats:
    same = ("worker", "inputs", "living", "entries", "seconds", "loading", "bytes", "threads",
            "cores", "forms", "compiling")  # fmt: skip
    return BatchStats(
        batch=task.batch,
        done=done,
        batches=batches,
        **{name: getattr(result, name) for name in same},
    )


class _Threads:
    """Warns, once, if workers compute with more threads than there are cores."""

    def __init__(self) -> None:
        self._threads: dict[str, dict[str, int]] = {}
        self._warned = False

    def check(self, result: BatchResult) -> None:
        there = self._threads.setdefault(result.host, {})
        if self._warned or result.worker in there:
            return
        there[result.worker] = result.threads
        if result.threads > result.cores:
            text = (
                f"worker {result.worker} computes with {result.threads} threads on {result.cores}"
                " cores (Open MPI binds a rank to one: mpiexec --bind-to none)"
            )
        elif (
            result.host == socket.gethostname()
            and sum(there.values()) > (most := cores(bound=False))
            and (running := sum((there := _living(there)).values())) > most
        ):
            text = (
                f"{len(there)} workers compute with {running} threads in all on"
                f" {most} cores of {result.host}"
            )
        else:
            return
        self._warned = True
        warnings.warn(f"{text}; nthreads= is threads per worker", RuntimeWarning, stacklevel=2)


def _living(workers: dict[str, int]) -> dict[str, int]:
    """Return the threads of those workers of this machine whose processes have not ended."""
    found = {}
    for worker, threads in workers.items():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(int(worker.split("-")[-2]), 0)
            found[worker] = threads
    return found
