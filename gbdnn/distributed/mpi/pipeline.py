"""Model parallel inference: each rank holds consecutive layers, inputs stream through the ranks.

features ── batches ──> rank 0: net[:a] ── alive ──> rank 1: net[a:b] ── ... ──> the answer

An input without entries that no later layer revives is dropped. The others are collected in groups
of some thousands and sent as sparse rows while the next batch is computed.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from gbdnn.arrays.checks import as_list, as_word, require_callable, whole_number
from gbdnn.arrays.matrices import as_features
from gbdnn.arrays.sources import as_source
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.mpi.ranks import Ranks
from gbdnn.distributed.mpi.stages import Stage, batches, held_layers, measured_cuts
from gbdnn.distributed.stats import RankStats
from gbdnn.engine.plan import MEMORY
from gbdnn.engine.progress import RunProgress, watched
from gbdnn.engine.run import checked_options
from gbdnn.errors import ArgumentError, require_kind
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.optional import require
from gbdnn.runtime.threads import engaged, restored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import graphblas as gb
    from mpi4py.MPI import Comm

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.arrays.sources import RowSource
    from gbdnn.distributed.mpi.ranks import Links
    from gbdnn.engine.plan import Engine
    from gbdnn.engine.stats import LayerStats
    from gbdnn.model.layer import Layer

__all__ = ["pipeline"]

_SMALLEST, _LARGEST = 2048, 8192  # inputs of a batch


def pipeline(
    layers: Network | Iterable[Layer] | Iterable[MatrixLike],
    features: MatrixLike | None,
    *,
    comm: Comm | None = None,
    cuts: Sequence[int] | None = None,
    answer: Literal["root", "all"] = "root",
    root: int = 0,
    batch_size: int | None = None,
    engine: Engine = "auto",
    deduplicate: bool | Literal["auto"] = "auto",
    memory: int = MEMORY,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
    report: Callable[[tuple[RankStats, ...]], object] | None = None,
) -> gb.Matrix | None:
    """Return the answer of `infer`, with the layers divided among the ranks of a communicator.

    All ranks call it with the same arguments, except `features`, `nthreads`, `callback` and
    `report`, which are each rank's own.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices
        As for `infer`; at least one layer per rank. A rank reads only its own layers of a stored
        network, and keeps them for the next call.
    features : Matrix, SciPy sparse, 2-D ndarray or stored features, shape (inputs, neurons)
        As for `infer`. Read by rank 0; the other ranks may pass None.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks (default: ``MPI.COMM_WORLD``).
    cuts : sequence of int, optional
        The first layers of ranks 1, 2, ...: with ``[3]`` rank 0 holds ``net[:3]`` and rank 1
        ``net[3:]``. By default rank 0 computes a sample of up to 1,024 inputs through all layers,
        and the cuts minimise the time of the slowest rank.
    answer : {"root", "all"}, default "root"
        Which ranks get the answer.
    root : int, default 0
        The rank that gets it.
    batch_size : int, optional
        Inputs that rank 0 computes at a time (default: 2,048 to 8,192).
    engine, deduplicate, memory, nthreads, callback
        As for `infer`, on each rank. Ranks on one machine share its cores; set `nthreads`
        accordingly.
    report : callable, optional
        Called once, at the end, with a tuple of records, one per rank: `rank`, `layers` (first, and
        one past the last), `inputs` received, `alive` passed on, bytes `sent`, seconds `busy` and
        `waited`, and `kernels` (edges by kernel, summed over the inputs).

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer), or None
        The answer; None on the ranks that do not get it.

    Raises
    ------
    GbdnnError
        On all ranks, if one of them fails: the errors of `infer`, or a `WorkerError` if the error
        is not gbdnn's. The message names the rank.
    ArgumentError
        Ranks got different networks (shapes, edges, biases and activations are compared), `cuts`,
        `answer` or `root`.
    MissingPackageError
        mpi4py is not installed.

    Notes
    -----
    Ranks exchange ids and sparse rows of the inputs that still have entries, or of all inputs if a
    later layer revives them. An error elsewhere stops a rank after its present batch.

    The answer equals that of `infer` exactly where all sums are exact, else within rounding.

    Examples
    --------
    Under ``mpiexec -n 2 python script.py`` each rank holds one layer; a single rank holds both.

    >>> import numpy as np, gbdnn
    >>> W = np.array([[0.5, 0.0], [1.0, -1.0]])
    >>> X = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    >>> Y = gbdnn.distributed.pipeline([W, W], X)
    >>> Y.to_dense(fill_value=0)  # Y is None on other ranks
    array([[0.5, 0. ],
           [1.5, 0. ],
           [0. , 0. ]])
    """
    options: dict[str, Any] = {
        "engine": engine,
        "deduplicate": deduplicate,
        "memory": memory,
        "nthreads": nthreads,
        "callback": callback,
    }
    mpi = require("mpi4py.MPI", "mpi", "a pipeline needs mpi4py")
    comm = mpi.COMM_WORLD if comm is None else comm
    require_kind(comm, mpi.Intracomm, "comm must be an mpi4py.MPI.Intracomm")
    with closing(Ranks(comm)) as ranks:
        run = _Pipeline(ranks, options)
        given = {
            "cuts": cuts, "answer": answer, "root": root, "batch_size": batch_size,
            "report": report,
        }  # fmt: skip
        shared = ranks.together(partial(run.check, layers, features, given))
        _require_same(shared)
        chosen = ranks.together(partial(run.cuts, shared[0]["cuts"]))[0]
        stats = run.run(chosen, shared[0]["inputs"], batch_size)
        if report is not None:
            report(tuple(stats))
        return run.answer


class _Pipeline:
    """One rank's part of one call."""

    def __init__(self, ranks: Ranks, options: dict[str, Any]) -> None:
        self._ranks, self._options = ranks, options
        self._targets = list(range(ranks.size))
        self._net = Network([])
        self._X: RowSource | None = None
        self.answer: gb.Matrix | None = None

    def check(self, layers: Any, features: Any, given: dict[str, Any]) -> dict[str, Any]:
        """Check the arguments; return those that all ranks must agree on, and the inputs."""
        self._options = checked_options("pipeline", **self._options)
        require_callable(given["report"], "report")
        if given["batch_size"] is not None:
            whole_number(given["batch_size"], "batch_size", least=1)
        answer = as_word(given["answer"], "answer", ("root", "all"))
        root = whole_number(given["root"], "root", least=0, most=self._ranks.size - 1)
        if answer == "root":
            self._targets = [root]
        cuts = given["cuts"]
        with restored(), engaged(self._options["nthreads"]):
            net = self._net = as_network(layers)
            if len(net) < self._ranks.size:
                raise ArgumentError(
                    f"a network of {len(net)} layers cannot be divided among {self._ranks.size}"
                    " ranks"
                )
            if self._ranks.rank == 0:
                features = as_features(features, "features")
                self._X = as_source(features, net.infos[0].dtype, net.infos[0].shape)
        return {
            "network": [f"{info.shape} {info.edges} {info.describe()}" for info in net.infos],
            "cuts": None if cuts is None else _checked_cuts(cuts, len(net), self._ranks.size),
            "answer": answer,
            "root": root,
            "inputs": None if self._X is None else self._X.nrows,
        }

    def cuts(self, given: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the given cuts, or (on rank 0) cuts measured on a sample."""
        if given is not None or self._X is None:
            return given or ()
        return measured_cuts(self._net, self._X, self._ranks.size, self._options)

    def run(self, cuts: Sequence[int], inputs: int, batch: int | None) -> list[RankStats]:
        """Compute all inputs through this rank's layers and set the answer."""
        net, rank, last = self._net, self._ranks.rank, self._ranks.size - 1
        start, stop = [0, *cuts, len(net)][rank : rank + 2]
        size = batch or min(max(inputs // (8 * (last + 1)), _SMALLEST), _LARGEST)
        sources = [rank - 1] if rank else []
        targets = [rank + 1]
        if rank == last:
            targets = [target for target in self._targets if target != last]
        elif rank in self._targets:
            sources.append(last)

        def work(links: Links) -> RankStats:
            drops = not any(info.revives for info in net.infos[stop:])
            with restored(), engaged(self._options["nthreads"]):
                part = net.prepared(held_layers, start, stop)
            stage = Stage(part, start, drops=drops, options=self._options)
            came = links.receive(rank - 1) if self._X is None else batches(self._X, size)
            kept = []
            with watched(RunProgress()) as work:
                for rows in stage.rows(links.watched(came)):
                    if rank == last:
                        kept.append(rows)  # the receiving ranks may be busy
                    else:
                        links.send(rows)
            for rows in kept:
                links.send(rows)
            links.end()
            if rank in self._targets:
                kept = kept if rank == last else list(links.receive(last))
                shape, dtype = (inputs, net.shape[1]), net.infos[0].dtype
                self.answer = SparseRows.stacked(kept, *shape, dtype).matrix()
            return RankStats(
                rank=rank,
                layers=(start, stop),
                inputs=stage.inputs,
                alive=stage.alive,
                sent=links.sent,
                busy=stage.busy,
                waited=links.waited,
                kernels=work.kernels,
            )

        return self._ranks.linked(work, sources, targets)


def _checked_cuts(cuts: Any, layers: int, ranks: int) -> tuple[int, ...]:
    """Return cuts as a tuple, or raise ArgumentError."""
    numbers = as_list(cuts, "cuts must be a sequence of whole numbers")
    checked = tuple(whole_number(cut, "a cut", least=1, most=layers - 1) for cut in numbers)
    if len(checked) != ranks - 1 or list(checked) != sorted(set(checked)):
        raise ArgumentError(
            f"cuts must be {ranks - 1} ascending numbers for {ranks} ranks, not {list(checked)}"
        )
    return checked


def _require_same(shared: Sequence[dict[str, Any]]) -> None:
    """Raise ArgumentError, on all ranks, if the arguments of one differ from those of rank 0."""
    for rank, its in enumerate(shared):
        for name in ("network", "cuts", "answer", "root"):
            if its[name] != shared[0][name]:
                words = "" if name == "network" else f": {shared[0][name]} and {its[name]}"
                raise ArgumentError(f"{name} differs on rank 0 and rank {rank}{words}")
