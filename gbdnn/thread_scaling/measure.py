"""Run calls on several numbers of threads: `gbdnn.scaling`.

A round runs every call on every number of threads once, so that a disturbance affects all of them.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_flag, as_list, require_callable, whole_number
from gbdnn.arrays.matrices import is_graphblas
from gbdnn.engine.progress import RunProgress, watched
from gbdnn.engine.run import is_stop
from gbdnn.errors import ArgumentError, ArgumentTypeError
from gbdnn.runtime.cores import cores, usable
from gbdnn.runtime.first_use import complete, gb
from gbdnn.runtime.pinning import bound
from gbdnn.runtime.threads import MOST_THREADS
from gbdnn.runtime.topology import physical_cores
from gbdnn.thread_scaling.study import Run, Scaling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Call = Callable[..., object]

__all__ = ["in_context", "scaling"]

_PAUSE = 0.1  # seconds; idle threads of OpenMP spin before they sleep
_STAT = Path("/proc/stat")


def in_context(function: Callable[[], object]) -> Call:
    """Return a call for `gbdnn.scaling` that runs a function in a GraphBLAS Context.

    Parameters
    ----------
    function : callable without arguments
        Any GraphBLAS calls. If it returns an object of GraphBLAS, this is completed.

    Returns
    -------
    callable
        ``call(n)`` runs the function with n OpenMP threads.

    Examples
    --------
    >>> import graphblas as gb, gbdnn
    >>> A = gb.Matrix.from_coo([0, 1], [1, 0], 1.0)
    >>> call = gbdnn.thread_scaling.in_context(lambda: gb.semiring.plus_times(A @ A).new())
    >>> study = gbdnn.scaling(call, (1, 2), rounds=2)
    """
    require_callable(function, "function")

    def call(n: int) -> object:
        with gb.ss.Context(engage=False, nthreads=n):
            result = function()
            complete(result)
            return result

    return call


def scaling(
    call: Call | Mapping[str, Call],
    nthreads: Iterable[int] | None = None,
    *,
    sizes: Iterable[int] | None = None,
    rounds: int = 7,
    weak: Call | Mapping[str, Call] | None = None,
    pin: Literal["compact", "scatter", False] = False,
    per_kernel: bool = False,
) -> Scaling:
    """Measure calls on several numbers of threads.

    Parameters
    ----------
    call : callable, or dict of str to callable
        ``call(n)`` runs on n threads, such as ``lambda n: gbdnn.infer(net, X, nthreads=n)``. For
        GraphBLAS calls, use `thread_scaling.in_context`. A dict compares programs by name.
    nthreads : iterable of int, optional
        Numbers of threads; speed-ups are relative to the smallest. Default: 1, 2, 4, ... up to the
        number of physical cores, this number, and the number of hardware threads.
    sizes : iterable of int, optional
        Call ``call(n, size)`` with each size, such as a number of inputs. Short calls gain less
        from threads, for reasons that are not the program's.
    rounds : int, default 7
        Timed rounds after a warm-up. Fewer than six support no conclusion.
    weak : callable, or dict of str to callable, optional
        ``weak(n)`` runs n times the inputs on n threads (weak scaling).
    pin : {"compact", "scatter", False}, default False
        Bind the process to as many processors as threads during each run (Linux): "compact" fills
        the physical cores of one NUMA node, then those of the next; "scatter" takes cores of the
        nodes in turns. Second hardware threads of cores come last. The affinity is restored.
    per_kernel : bool, default False
        Run each call once more in every round and record the time of kernels and layers in calls
        of `infer`. These runs take longer, and do not count for the other times.

    Returns
    -------
    Scaling

    Raises
    ------
    ArgumentError, ArgumentTypeError
        An argument is invalid, or the process cannot be bound.

    Notes
    -----
    A round is *disturbed* if other programs use more than a quarter of a core, or 5 % of the cores,
    of those available to this process, by ``/proc/stat`` without the processor time of this
    process; elsewhere, if the load average exceeds the largest number of threads by half a core or
    10 %. Statistics omit disturbed rounds. If these are more than half of all, statistics are those
    of all rounds, no conclusions are drawn, and figures and tables say so. Child processes count as
    other programs.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> study = gbdnn.scaling(lambda n: gbdnn.infer([np.eye(9)], np.eye(9), nthreads=n), (1, 2))
    >>> [row["threads"] for row in study.rows]
    [1, 2]
    """
    counts = _numbers(_counts() if nthreads is None else nthreads, "nthreads", MOST_THREADS)
    more = [()] if sizes is None else [(size,) for size in _numbers(sizes, "sizes", 1 << 62)]
    whole_number(rounds, "rounds", least=1)
    as_flag(per_kernel, "per_kernel")
    if pin is not False and pin not in ("compact", "scatter"):
        raise ArgumentError(f"pin must be 'compact', 'scatter' or False, not {pin!r}")
    calls = {("strong", name): each for name, each in _named(call, "call").items()}
    if weak is not None:
        calls |= {("weak", name): each for name, each in _named(weak, "weak").items()}
    keys = [(*key, n, *size) for key in calls for size in more for n in counts]

    def once(kind: str, name: str, n: int, *size: int) -> tuple[float, float]:
        with bound(n, scatter=pin == "scatter") if pin else nullcontext():
            cpu, began = process_time(), perf_counter()
            complete(calls[kind, name](n, *size))
            seconds = perf_counter() - began, process_time() - cpu
        sleep(_PAUSE)
        return seconds

    load, runs = [_load()], list[Run]()
    parts: dict[tuple[Any, ...], list[list[float]]] = defaultdict(list)
    for key in keys:
        once(*key)
    for turn in range(rounds):
        others = _others(max(counts))
        of_calls = {key: once(*key) for key in (keys if turn % 2 else keys[::-1])}
        busy = others()
        for kind, name, n, *size in keys:
            times = of_calls[kind, name, n, *size]
            runs.append(Run(name, kind, n, turn, *times, busy, *size))
        for key in keys if per_kernel else ():
            with watched(RunProgress()) as work:
                wall = once(*key)[0]
            for part, each in _parts(work, key[2] * wall).items():
                parts[*key, part].append(each)
    rows = []
    for (kind, name, n, *size, part), values in parts.items():
        seconds, edges = np.median(values, axis=0).tolist()
        row = {"program": name, "kind": kind, "threads": n, "part": part, "seconds": seconds}
        row |= {"size": size[0]} if size else {}
        rows.append(row | {"rate": edges / seconds if seconds else 0.0})
    load.append(_load())
    return Scaling(runs, rows, load, pin)


def _load() -> float:
    """Return the load average; 0 on Windows, which has none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _counts() -> set[int]:
    """Return the default numbers of threads."""
    there = physical_cores()
    return {1 << k for k in range(there.bit_length())} | {there, cores()}


def _numbers(given: Iterable[int], name: str, most: int) -> list[int]:
    values = as_list(given, f"{name} must be a list of integers")
    numbers = sorted({whole_number(n, name, least=1, most=most) for n in values})
    if not numbers:
        raise ArgumentError(f"{name} is empty; pass at least one number")
    return numbers


def _named(call: Any, what: str) -> dict[str, Call]:
    calls = dict(call) if isinstance(call, Mapping) else {"call": call}
    for name, each in calls.items():
        if not isinstance(name, str) or not callable(each) or is_graphblas(each):
            raise ArgumentTypeError(
                f"{what} must be a callable, or a dict of callables by name, such as"
                " lambda n: gbdnn.infer(net, X, nthreads=n)"
            )
    return calls


def _others(threads: int) -> Callable[[], float]:
    """Return a function that returns the cores that other programs have used since now."""
    cpus = {f"cpu{cpu}" for cpu in usable()}

    def busy() -> float:
        lines = (line.split() for line in _STAT.read_text(encoding="utf-8").splitlines())
        # user, nice, system, idle, iowait, irq, softirq, steal
        each = [list(map(int, line[1:9])) for line in lines if line[0] in cpus]
        return sum(sum(of) - of[3] - of[4] for of in each) / os.sysconf("SC_CLK_TCK")

    try:
        first, began = busy() - process_time(), perf_counter()
    except (AttributeError, OSError):  # no such file or number
        return lambda: max(0.0, _load() - threads)
    return lambda: max(0.0, (busy() - process_time() - first) / (perf_counter() - began))


def _parts(work: RunProgress, seconds: float) -> dict[str, list[float]]:
    """Return seconds and multiply-adds of each part of a run that took `seconds` on all threads."""
    times = {}
    for kernel, each in work.layers.items():
        cuts = [k for k in range(len(each)) if k == 0 or is_stop(k)]
        for first, last in zip(cuts, [*cuts[1:], len(each)], strict=True):
            if each[first:last, 1].any():
                times[f"{kernel}, layers {first}-{last - 1}"] = each[first:last].sum(axis=0)
    times |= {what: np.array([spent, 0]) for what, spent in work.seconds.items()}
    other = max(0.0, seconds - sum(each[0] for each in times.values()))
    return {what: each.tolist() for what, each in times.items()} | {"other": [other, 0.0]}
