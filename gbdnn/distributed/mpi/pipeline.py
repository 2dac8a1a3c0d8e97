"""Model parallel: each rank holds consecutive layers, and inputs stream through the ranks.

features ── batches ──> rank 0: net[:a] ── survivors ──> rank 1: net[a:b] ── ... ──> the answer

An input without entries that no later layer revives is dropped; the others are collected, some
thousands, and move on as sparse rows while the next batch is computed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal
from zlib import crc32

from gbdnn.arrays.checks import as_list, as_word, require_callable, whole_number
from gbdnn.arrays.sparse_rows import SparseRows
from gbdnn.distributed.held_layers import (
    HeldLayers,
    Stage,
    batches,
)
from gbdnn.distributed.mpi.agreement import Ranks
from gbdnn.distributed.mpi.cuts import measured_cuts
from gbdnn.distributed.stats import RankStats
from gbdnn.engine.memory import MEMORY
from gbdnn.engine.progress import RunProgress, watched
from gbdnn.engine.run import checked
from gbdnn.engine.sources import as_source
from gbdnn.errors import ArgumentError, require_kind
from gbdnn.kernels.fused import FUSED
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.optional import require
from gbdnn.runtime.threads import engaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import graphblas as gb
    from mpi4py.MPI import Comm

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.distributed.mpi.transport import Links
    from gbdnn.engine.choice import Engine
    from gbdnn.engine.sources import RowSource
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
    batch: int | None = None,
    engine: Engine = "auto",
    compress: bool | Literal["auto"] = "auto",
    memory: int = MEMORY,
    nthreads: int | None = None,
    callback: Callable[[LayerStats], object] | None = None,
    report: Callable[[tuple[RankStats, ...]], object] | None = None,
) -> gb.Matrix | None:
    """Return what `infer` returns, with the layers shared out over the ranks of a communicator.

    All ranks call it with the same network and options; `nthreads`, `callback` and `report` are
    each rank's own.

    Parameters
    ----------
    layers : Network, list of Layer, or list of matrices
        As for `infer`. Of a network that is not in memory, such as a stored one, a rank reads its
        own layers alone, and keeps them.
    features : Matrix, SciPy sparse, 2-D ndarray or stored features, shape (inputs, neurons)
        As for `infer`. Read by rank 0 alone: None elsewhere will do.
    comm : mpi4py.MPI.Intracomm, optional
        The ranks (default: ``MPI.COMM_WORLD``).
    cuts : sequence of int, optional
        The first layers of ranks 1, 2, ...: with ``[3]`` rank 0 holds ``net[:3]`` and rank 1
        ``net[3:]``. Default: rank 0 takes a sample of up to 1,024 inputs through all layers, and
        the slowest rank gets as little to do as possible.
    answer : {"root", "all"}, default "root"
        Which ranks get the answer.
    root : int, default 0
        The rank that gets it.
    batch : int, optional
        Inputs that rank 0 takes at a time (default: from 2,048 to 8,192, so that there are eight
        batches per rank or more).
    engine, compress, memory, nthreads, callback
        As for `infer`, on each rank. Ranks that share a machine share its threads:
        ``nthreads=`` gives each its part.
    report : callable, optional
        Called at the end, on the ranks that pass one, with a `distributed.RankStats` of every
        rank.

    Returns
    -------
    graphblas.Matrix, shape (inputs, neurons of the last layer), or None
        On the ranks that get the answer; None on the others.

    Raises
    ------
    GbdnnError
        On all ranks, if one of them fails or its options differ from those of rank 0: what `infer`
        raises, or a `RankError` for an error that is not gbdnn's. The message names the rank. Of
        the network its shapes, edges, biases and activations are compared.
    MissingPackageError
        mpi4py is not installed.

    Notes
    -----
    What moves is ids and sparse rows of the inputs that still have entries, or of all inputs where
    a later layer revives them. Rows are collected to 2,048 before they go on: below that, layers
    take longer per input. A rank learns of an error elsewhere when the batch at hand is done.

    Answers agree with `infer` as its Notes say: to the last bit where all sums are exact, else
    within rounding.

    Examples
    --------
    Under ``mpiexec -n 2 python script.py`` each of two ranks holds one layer; alone, one holds
    both.

    >>> import numpy as np, gbdnn
    >>> W = np.array([[0.5, 0.0], [1.0, -1.0]])
    >>> X = np.array([[2.0, 0.0], [0.0, 3.0], [0.0, 0.0]])
    >>> Y = gbdnn.pipeline([W, W], X)
    >>> Y.to_dense(fill_value=0)  # None on other ranks than 0
    array([[0.5, 0. ],
           [1.5, 0. ],
           [0. , 0. ]])
    """
    options: dict[str, Any] = {
        "engine": engine,
        "compress": compress,
        "memory": memory,
        "nthreads": nthreads,
        "callback": callback,
    }
    mpi = require("mpi4py.MPI", "mpi", "a pipeline needs mpi4py")
    comm = mpi.COMM_WORLD if comm is None else comm
    require_kind(comm, mpi.Intracomm, "comm is an mpi4py.MPI.Intracomm")
    with Ranks(comm) as ranks:
        run = _Pipeline(ranks, options, root if answer == "root" else None)
        shared = ranks.together(
            partial(run.check, layers, features, answer, root, cuts, batch, report)
        )
        _require_same(shared)
        chosen = ranks.together(partial(run.cuts, shared[0]["cuts"]))[0]
        stats = run.run(chosen, shared[0]["inputs"], batch)
        if report is not None:
            report(tuple(stats))
        return run.answer


class _Pipeline:
    """One rank's part of one call."""

    def __init__(self, ranks: Ranks, options: dict[str, Any], root: int | None) -> None:
        self._ranks, self._options = ranks, options
        self._targets = list(range(ranks.size)) if root is None else [root]
        self._net = Network([])
        self._X: RowSource | None = None
        self.answer: gb.Matrix | None = None

    def check(
        self,
        layers: Any,
        features: Any,
        answer: str,
        root: int,
        cuts: Any,
        batch: int | None,
        report: Any,
    ) -> dict[str, Any]:
        """Check the arguments; return those that all ranks must agree on, and the inputs."""
        memory, _ = checked(**self._options)
        require_callable(report, "report")
        with engaged(self._options["nthreads"]):
            net = self._net = as_network(layers)
        if not len(net):
            raise ArgumentError("a network without layers: there is nothing to share out")
        as_word(answer, "answer", ("root", "all"))
        whole_number(root, "root", least=0, most=self._ranks.size - 1)
        if batch is not None:
            whole_number(batch, "batch", least=1)
        if self._ranks.rank == 0:
            with engaged(self._options["nthreads"]):
                self._X = as_source(features, net, room=self._options["memory"])
        words = "".join(f"{info.shape} {info.describe()}\n" for info in net.infos)
        return {
            "network": f"{len(net)} layers, {net.edges} edges, checksum {crc32(words.encode()):x}",
            "cuts": None if cuts is None else _checked_cuts(cuts, len(net), self._ranks.size),
            "answer": answer,
            "root": int(root),
            "batch": batch if batch is None else int(batch),
            "engine": self._options["engine"],
            "compress": self._options["compress"],
            "memory": memory,
            "inputs": None if self._X is None else self._X.nrows,
        }

    def cuts(self, given: tuple[int, ...] | None) -> tuple[int, ...]:
        """Return the cuts that were given, or on rank 0 those that a sample suggests."""
        if given is not None or self._X is None:
            return given or ()
        return measured_cuts(self._net, self._X, self._ranks.size, self._options)

    def run(self, cuts: Sequence[int], inputs: int, batch: int | None) -> list[RankStats]:
        """Take all inputs through this rank's layers; the answer is there afterwards."""
        net, rank, last = self._net, self._ranks.rank, self._ranks.size - 1
        start, stop = [0, *cuts, len(net)][rank : rank + 2]
        size = batch or min(max(inputs // (8 * (last + 1)), _SMALLEST), _LARGEST)
        sources = [rank - 1] if rank else []
        targets = [rank + 1]
        if rank == last:
            targets = [each for each in self._targets if each != last]
        elif rank in self._targets:
            sources.append(last)

        def work(links: Links) -> RankStats:
            drops = not any(info.revives for info in net.infos[stop:])
            with engaged(self._options["nthreads"]):
                part = net.prepared(HeldLayers(start, stop))
            stage = Stage(part, start, drops=drops, options=self._options)
            came = links.receive(rank - 1) if self._X is None else batches(self._X, size)
            kept = []
            before, work = FUSED.seconds_compiling(net.dtype), RunProgress()
            with watched(work):
                for rows in stage.rows(links.watched(came)):
                    if rank == last:
                        kept.append(rows)  # the ranks that want them may be busy
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
                survivors=stage.survivors,
                sent=links.sent,
                busy=stage.busy,
                waited=links.waited,
                forms=work.forms,
                compiling=FUSED.seconds_compiling(net.dtype) - before,
            )

        return self._ranks.linked(work, sources, targets)


def _checked_cuts(cuts: Any, layers: int, ranks: int) -> tuple[int, ...]:
    """Return cuts as a tuple, or raise the error that says what they must be."""
    given = as_list(cuts, "cuts is a sequence of whole numbers")
    found = tuple(whole_number(each, "a cut", least=0, most=layers) for each in given)
    if len(found) != ranks - 1 or list(found) != sorted(found):
        raise ArgumentError(
            f"cuts are the first layers of ranks 1 to {ranks - 1}, ascending: {ranks - 1} numbers"
            f" for {ranks} ranks, not {list(found)}"
        )
    return found


def _require_same(shared: Sequence[dict[str, Any]]) -> None:
    """Raise the error, on all ranks, of one that was given something else than rank 0."""
    for rank, its in enumerate(shared):
        for name, mine in shared[0].items():
            if name != "inputs" and its[name] != mine:
                raise ArgumentError(
                    f"all ranks of a pipeline take the same {name}:"
                    f" {mine} on rank 0, {its[name]} on rank {rank}"
                )
