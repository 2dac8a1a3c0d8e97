"""Batches of inputs on an executor: how inputs are divided, and the driver that runs the tasks.

At most `ahead` tasks are in flight, so memory is bounded whatever the number of batches. When a
batch fails, or the caller is interrupted or stops asking, the other tasks are cancelled; those that
are running finish, and the executor can be used again.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from queue import SimpleQueue
from threading import Timer
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.answer import Answer
from gbdnn.distributed.executors.tasks import SentFeatures, Task, compute, sent_network
from gbdnn.errors import GbdnnError, WorkerError, naming, prefix, require_kind
from gbdnn.kernels.costs import REORDER_FROM

if TYPE_CHECKING:
    from collections.abc import Iterator

    import graphblas as gb

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.executors.workers import Workers
    from gbdnn.distributed.rows import CompactRows
    from gbdnn.model.network import Network

__all__ = ["FEWEST", "computed", "cuts", "dealt", "infer_batches_over", "infer_over"]

_PATIENCE = 10.0  # seconds until a cluster without workers is reported
AHEAD = 2
"""Tasks in flight per worker: one that is computed, and one that has arrived."""

FEWEST = REORDER_FROM
"""Inputs of a batch: fewer are computed without reordering, which takes longer per input."""

_ROUNDS = 4  # batches per worker: a slow worker gets fewer of them

_ENGINES = ("dask", "distributed", "ray", "parsl")  # their own errors are about workers
_ADVICE = "Repeat the call with a new executor; gbdnn.infer_to_store keeps its finished parts"


def cuts(inputs: int, workers: int, batch: int | None = None) -> np.ndarray:
    """Return the first input of each batch, and the number of inputs.

    Batches are equal shares of at least `batch` inputs. By default each worker gets up to four
    batches of at least `FEWEST` inputs.
    """
    if batch is None:
        rounds = min(_ROUNDS, inputs // (FEWEST * workers))
        count = rounds * workers or inputs // FEWEST
    else:
        count = inputs // batch
    return np.linspace(0, inputs, max(1, count) + 1).astype(np.int64)


def dealt(inputs: int) -> np.ndarray:
    """Return all inputs in the order of a hash of their numbers (splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.arange(1, inputs + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.argsort(x ^ (x >> np.uint64(31)), kind="stable")


def infer_over(
    net: Network, features: MatrixLike, workers: Workers, options: dict[str, Any]
) -> gb.Matrix:
    """Return the activations of the last layer; see `gbdnn.infer`."""
    X = SentFeatures(features, net, workers)
    starts = cuts(X.nrows, workers.count, workers.batch_size)
    deal = dealt(X.nrows) if workers.is_hashed else None

    def ids(k: int) -> np.ndarray:
        start, stop = starts[k], starts[k + 1]
        return np.arange(start, stop) if deal is None else np.sort(deal[start:stop])

    def tasks() -> Iterator[Task]:
        for k, (start, stop) in enumerate(pairwise(starts.tolist())):
            rows = X.rows(start, stop) if deal is None else X.take(ids(k))
            yield Task(batch=k, network=network, features=rows, options=options)

    answer = Answer(X.nrows, net.shape[1], np.dtype(net.infos[0].dtype))
    with sent_network(net, workers, options["memory"]) as network:
        for task, rows in computed(workers, tasks(), batches=len(starts) - 1):
            if rows is not None:
                answer.add(rows.rows(ids(task.batch)))
            del rows
    return answer.matrix(None)


def infer_batches_over(
    net: Network, batches: Iterator[MatrixLike], workers: Workers, options: dict[str, Any]
) -> Iterator[gb.Matrix]:
    """Yield the activations of the last layer, batch by batch; see `gbdnn.infer_batches`."""

    def tasks() -> Iterator[Task]:
        for k, features in enumerate(batches):
            sent: Any = features
            if not workers.shares_memory:
                with naming(f"batch {k}"):
                    X = SentFeatures(features, net)
                    sent = X.rows(0, X.nrows)
            yield Task(batch=k, network=network, features=sent, options=options)

    with sent_network(net, workers, options["memory"]) as network:
        for _, rows in computed(workers, tasks(), in_order=True):
            if rows is not None:
                yield rows.rows().matrix()


def computed(
    workers: Workers, tasks: Iterator[Task], *, in_order: bool = False, batches: int | None = None
) -> Iterator[tuple[Task, CompactRows | None]]:
    """Yield tasks with their answers, in the tasks' order or as they finish.

    The next task is requested when it can be submitted. An exception of the iterator `tasks` is
    raised after the answers of all earlier tasks. If `in_order`, an answer waits for those of the
    tasks before it and counts as in flight until then. `workers.callback` gets a record per answer.
    """
    flight: dict[Future[Any], Task] = {}
    absence = Timer(_PATIENCE, workers.report_absence)
    absence.daemon = True
    if workers.is_dask:
        absence.start()
    # `concurrent.futures.wait` never returns for futures that a shutdown has cancelled.
    finished: SimpleQueue[Future[Any]] = SimpleQueue()
    failure: Exception | None = None
    done, more = 0, True
    try:
        while more or flight:
            # Dask's workers come and go: they are counted each time.
            with _worker_errors("counting workers", done):
                most = workers.ahead or AHEAD * workers.count
            while more and len(flight) < most:
                try:
                    task = next(tasks)
                except StopIteration:
                    more = False
                except Exception as err:
                    more, failure = False, err
                else:
                    future = _submitted(workers, task, done)
                    flight[future] = task
                    if not in_order:
                        future.add_done_callback(finished.put)
            if not flight:
                break
            future = next(iter(flight)) if in_order else finished.get()
            task = flight.pop(future)
            with _worker_errors(f"batch {task.batch}", done):
                rows, record = future.result()
            done += 1
            if workers.callback is not None:
                workers.callback(replace(record, done=done, batches=batches))
            yield task, rows
        if failure is not None:
            raise failure
    finally:
        absence.cancel()
        for future in flight:
            future.cancel()
        future = None  # type: ignore[assignment]  # its error's traceback refers to this frame


def _submitted(workers: Workers, task: Task, done: int) -> Future[Any]:
    with _worker_errors(f"batch {task.batch}", done):
        try:
            future = workers.submit(compute, task)
        except RuntimeError as err:  # after a shutdown, or a BrokenExecutor
            raise BrokenExecutor(f"cannot submit a task to the executor: {err}") from err
    require_kind(future, Future, "executor: submit must return a concurrent.futures.Future")
    return future


@contextmanager
def _worker_errors(where: str, done: int) -> Iterator[None]:
    """Turn an engine's own errors into WorkerError, and name the batch in others."""
    try:
        yield
    except (Exception, CancelledError) as err:
        is_own = type(err).__module__.partition(".")[0] in _ENGINES
        if isinstance(err, GbdnnError):  # also of Ray, which derives a class from a task's error
            prefix(err, where)
        elif is_own or isinstance(err, BrokenExecutor | CancelledError):
            reason = ": ".join(filter(None, [type(err).__name__, str(err)]))
            raise WorkerError(
                f"{where}: the executor failed after {done} finished batches: {reason}. {_ADVICE}"
            ) from err
        else:
            err.add_note(f"gbdnn: {where}")
        raise
