"""What the ranks of test_pipeline do: ``python tests/support/ranks.py CASE FOLDER`` on each.

Rank 0 prints what it found as JSON.
"""

import json
import sys
from pathlib import Path

import drawn
import numpy as np
import oracles
import scipy.sparse as sp
from conftest import network
from mpi4py import MPI
from mpi4py.util import pkl5

import gbdnn

COMM = MPI.COMM_WORLD
RANK, LAST = COMM.rank, COMM.size - 1


def same(net, X, *, expected=None, **options):
    """Whether the pipeline gives what `infer` gives, and the reports of all ranks."""
    reports = []
    kept = {key: options[key] for key in ("engine", "deduplicate") if key in options}
    expected = gbdnn.infer(net, X, **kept) if expected is None else expected
    mine = X if RANK == 0 else None
    Y = gbdnn.distributed.pipeline(net, mine, comm=COMM, report=reports.extend, **options)
    assert (Y is not None) == (options.get("answer") == "all" or options.get("root", 0) == RANK)
    equal = Y is None or Y.isequal(expected, check_dtype=True)
    return all(COMM.allgather(bool(equal))), reports


def stored(folder):
    """A stored challenge network and features, several cuts."""
    net, X = gbdnn.load(folder / "net", lazy=True), gbdnn.io.open_features(folder / "X")
    expected = gbdnn.infer(net.loaded(), X)
    found = {}
    for cuts in (None, [3, 4][:LAST], [1, 10][:LAST], [28, 29][:LAST]):
        equal, reports = same(net, X, expected=expected, cuts=cuts, batch_size=500, answer="all")
        found[str(cuts)] = [equal, [[*r.layers, r.inputs, r.alive, r.sent] for r in reports]]
    assert not net.in_memory
    return found


def kinds(_):
    """Drawn networks and features, receivers; inputs that all live, or are all empty."""
    found, receivers = {}, ({"root": LAST}, {"answer": "all", "nthreads": RANK + 1})
    for seed in range(60):
        draw = drawn.Draw.of(seed)
        if len(draw.layers) >= COMM.size and len(draw.X) <= 200:
            net, (X, form), cuts = draw.network(), draw.features(), [None, [1, 2][:LAST]][seed % 2]
            options = {"cuts": cuts, "batch_size": 1 + len(draw.X) // 3} | receivers[seed % 3 == 0]
            found[f"draw {seed}, {form}"] = same(net, X, **options)[0]
    case = oracles.case(3, bias="positive vector", inputs=60)
    equal, reports = same(net := network(case.layers), case.X, batch_size=7)
    found["all rows"] = equal and {report.inputs for report in reports} == {60}
    found["empty inputs"] = same(net, 0 * case.X)[0]
    layers = []
    same(net, case.X, cuts=[1, 2][:LAST], callback=lambda stats: layers.append(stats.layer))
    found["callback"] = all(COMM.allgather(set(layers) == {RANK}))
    # Sums that round, in one kernel.
    case = oracles.case(1, sizes=(60, 50, 70, 40, 50), inputs=900, exact=False, clip=None)
    for engine in ("fused", "full"):
        for X in (case.X, sp.csr_array(case.X)):
            options = {"cuts": [1, 2][:LAST], "engine": engine, "batch_size": 250}
            found[f"{engine} {type(X).__name__}"], _ = same(network(case.layers), X, **options)
    # Messages that are larger than what MPI counts.
    pkl5.pickle.THRESHOLD, pkl5._BigMPI.blocksize = 64, 100
    case = oracles.case(5, inputs=300)
    found["large messages"] = same(network(case.layers), sp.csr_array(case.X), batch_size=100)[0]
    return found


def split(_):
    """Pairs of ranks divide the inputs; the two of a pair divide the layers."""
    net = gbdnn.gallery.radixnet(1024, 8)
    X = gbdnn.gallery.features_from_images(gbdnn.gallery.digits(), 1024)
    group, groups = RANK // 2, COMM.size // 2
    start, stop = X.nrows * group // groups, X.nrows * (group + 1) // groups
    mine, reports = X[start:stop, :].new(), []
    pair = COMM.Split(group, RANK)
    Y = gbdnn.distributed.pipeline(net, mine, comm=pair, cuts=[3], report=reports.extend)
    assert (Y is None) == (RANK % 2 == 1)
    expected = gbdnn.infer(net, X)[start:stop, :].new()
    equal = Y is None or Y.isequal(expected, check_dtype=True)
    return COMM.allgather((equal, 0 if Y is None else Y.nvals, len(reports)))


def fails(_):
    """Errors on one rank, raised on all; afterwards the ranks compute as before."""
    case, found = oracles.case(3), {}
    for how in ("callback 0", "callback 1", "callback 2", "overflow 0", "overflow 2", "cuts 1",
                "network 2", "answer 1", "root 2", "nthreads 2"):  # fmt: skip
        what, where = how.split()
        try:
            failing(what, int(where))
        except gbdnn.GbdnnError as err:
            words = [type(err).__name__, str(err)]
        everywhere = COMM.allgather(words)
        assert all(each == everywhere[0] for each in everywhere), everywhere
        found[how] = [*words, same(network(case.layers), case.X)[0]]
    return found


def dies(_):
    """The same, and no rank catches it."""
    failing("callback", 1)


def failing(what, where):
    net = gbdnn.gallery.radixnet(1024, 6)
    options = {"cuts": [2, 4], "batch_size": 500}
    wrong = {"callback": broken, "cuts": [1, 9], "answer": "all", "root": 1, "nthreads": 0}
    if where == RANK and what in wrong:
        options[what] = wrong[what]
    elif where == RANK and what == "network":
        net = gbdnn.gallery.radixnet(1024, 7)
    elif what == "overflow":  # in the second layer of the rank `where`
        k = 2 * where + 1
        huge = gbdnn.Layer(sp.eye_array(1024) * 1e38, dtype="FP32")
        net = gbdnn.Network([*net[: k - 1], huge, huge, *net[k + 1 :]])
    gbdnn.distributed.pipeline(net, Endless() if RANK == 0 else None, **options)


def broken(stats):
    raise RuntimeError("broken callback")


class Endless:
    """Features that no rank can read to the end."""

    nrows, ncols, nvals, largest, dtype = 10**12, 1024, 10**13, 1.0, np.dtype("float32")
    dense_rows = None

    def sparse_rows(self, start, stop):
        X = sp.random_array((stop - start, 1024), density=0.3, format="csr", dtype="f4", rng=start)
        X.data[:] = 1
        places = X.indptr.astype(np.uint64), X.indices.astype(np.uint64)
        return gbdnn.arrays.sparse_rows.SparseRows(*places, X.data, 1024)


if __name__ == "__main__":
    case, folder = sys.argv[1:]
    result = globals()[case](Path(folder))
    if RANK == 0:
        sys.stdout.write(json.dumps(result, default=bool))
