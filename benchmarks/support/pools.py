"""Executors by name, whose workers have one thread and have imported gbdnn."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

POOLS = ("threads", "spawned", "loky", "dask", "mpi")


@contextmanager
def opened(name: str, workers: int) -> Iterator[Any]:
    """Yield an executor or a Dask client; raise ImportError if its package is missing.

    The pool ``mpi`` has the other ranks of ``mpiexec -n N python -m mpi4py.futures SCRIPT``.
    """
    if name == "threads":
        with ThreadPoolExecutor(workers) as pool:
            yield pool
    elif name == "spawned":
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield pool
    elif name == "loky":
        from loky import ProcessPoolExecutor as Loky

        with Loky(workers) as pool:
            yield pool
    elif name == "dask":
        from dask.distributed import Client

        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
        with Client(processes=True, **options) as client:
            yield client
    else:
        from mpi4py import MPI
        from mpi4py.futures import MPIPoolExecutor

        if MPI.COMM_WORLD.size < 2:
            raise ImportError("no ranks: mpiexec -n N python -m mpi4py.futures SCRIPT")
        with MPIPoolExecutor() as pool:
            yield pool
