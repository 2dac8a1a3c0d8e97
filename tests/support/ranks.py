"""What the ranks of test_pipeline do: ``python tests/support/ranks.py CASE FOLDER [MORE]`` on each.

Rank 0 prints what it found as JSON.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import oracles
import scipy.sparse as sp
from conftest import network
from mpi4py import MPI
from mpi4py.util import pkl5

import gbdnn

COMM = MPI.COMM_WORLD
RANK, LAST = COMM.rank, COMM.size - 1


def same(net, X, *, batch=700, expected=None, **options):
    """Whether the pipeline gives what `infer` gives; reports of all ranks."""
    reports = []
    mine = X if RANK == 0 else None
    kept = {key: options[key] for key in ("engine", "compress") if key in options}
    Y = gbdnn.pipeline(net, mine, comm=COMM, batch=batch, report=reports.append, **options)
    root = options.get("root", 0)
    assert (Y is not None) == (options.get("answer") == "all" or root == RANK)
    equal = Y is None or Y.isequal(gbdnn.infer(net, X, **kept), check_dtype=True)
    return all(COMM.allgather(equal)), reports[0]


def stored(folder):
    """A stored challenge network and features, many cuts."""
    net, X = gbdnn.load(folder / "net", lazy=True), gbdnn.io.open_features(folder / "X")
    expected = gbdnn.infer(net.loaded(), X)
    found = {}
    for cuts in (None, [3] * LAST, [1, 10][:LAST], [30, 30][:LAST], [0, 0][:LAST]):
        records = []
        Y = gbdnn.pipeline(
            net, X if RANK == 0 else None, cuts=cuts, batch=500, report=records.append, answer="all"
        )
        equal = all(COMM.allgather(bool(Y.isequal(expected, check_dtype=True))))
        found[str(cuts)] = [
            equal,
            [[*each.layers, each.inputs, each.survivors, each.sent] for each in records[0]],
        ]
    assert not net.in_memory
    return found


def own(_):
    """Options that may differ."""
    case = oracles.case(3)
    mine = {"nthreads": RANK + 1, "callback": print if RANK < 0 else None}
    reports = [].append if RANK == LAST else None
    X = case.X if RANK == 0 else None
    Y = gbdnn.pipeline(network(case.layers), X, report=reports, answer="all", **mine)
    expected = gbdnn.infer(network(case.layers), case.X)
    return {"own": all(COMM.allgather(bool(Y.isequal(expected, check_dtype=True))))}


def kinds(_):
    """Biases, rules, dtypes, kinds of features, receivers; one input in five is empty."""
    found = {}
    for rule, bias, activation in (
        ("all", "positive vector", "relu"),
        ("all", "mixed vector", "relu"),
        ("all", "negative", "identity"),
        ("entries", "mixed vector", "relu"),
    ):
        case = oracles.case(3, rule=rule, bias=bias, activation=activation, inputs=60)
        for dtype in ("FP32", "FP64"):
            net = network(case.layers, dtype)
            for cuts in (None, [1] * LAST, [2] * LAST, [1, 2][:LAST]):
                equal, reports = same(net, case.X, cuts=cuts, batch=7)
                found[f"{rule} {bias} {activation} {dtype} {cuts}"] = equal
                if bias == "positive vector" and rule == "all":
                    found[f"all rows {dtype} {cuts}"] = {r.inputs for r in reports} == {60}
    sparse = sp.csr_array(case.X)
    for name, X in (("csr", sparse), ("coo", sparse.tocoo()), ("graphblas", _matrix(sparse))):
        found[name] = same(net, X, batch=11, root=LAST)[0]
        found[name + " all"] = same(net, X, batch=11, answer="all")[0]
    found["no inputs"] = same(net, case.X[:0])[0]
    found["empty inputs"] = same(net, 0 * case.X)[0]
    found["alone"] = gbdnn.pipeline(net, case.X, comm=MPI.COMM_SELF).isequal(
        gbdnn.infer(net, case.X), check_dtype=True
    )
    layers = []
    gbdnn.pipeline(net, case.X, cuts=[2] * LAST, callback=lambda stats: layers.append(stats.layer))
    found["callback"] = set(layers) == ({0, 1} if RANK == 0 else {2} if RANK == LAST else set())
    return found


def rough(_):
    """Sums that round, in a fixed block form, without reordering."""
    found = {}
    for seed in (0, 1):
        case = oracles.case(seed, sizes=(60, 50, 70, 40, 50), inputs=900, exact=False, clip=None)
        net = network(case.layers)
        for engine in ("fused", "full"):
            for X, kind in ((case.X, "dense"), (sp.csr_array(case.X), "sparse")):
                for cuts in ([1, 2], [2, 3], [0, 4]):
                    equal, _ = same(net, X, cuts=cuts[:LAST], engine=engine, batch=250)
                    found[f"{seed} {engine} {kind} {cuts}"] = equal
    return found


def parts(_):
    """Messages that are larger than what MPI counts."""
    pkl5.pickle.THRESHOLD = 64  # bytes of arrays that are sent beside the pickle
    pkl5._BigMPI.blocksize = 100
    case = oracles.case(5, inputs=300)
    return {"parts": same(network(case.layers), sp.csr_array(case.X), batch=100)[0]}


def fails(folder, *failures):
    """An error on one rank, raised on all; afterwards the ranks go on. As "broken 1"."""
    told = {}
    case = oracles.case(3)
    for each in failures:
        how, where = each.split()
        found = error(how, int(where))
        told[each] = {"error": found, "again": same(network(case.layers), case.X)[0]}
    return told


def differ(_):
    """Each option another one on the last rank, or on the one before."""
    return {how: error(how, LAST - k % 2) for k, how in enumerate(OTHERS)}


def error(how, where):
    """The kind and the words of an error that is the same on all ranks."""
    try:
        failing(how, where)
    except gbdnn.GbdnnError as err:
        told = [type(err).__name__, str(err)]
    everywhere = COMM.allgather(told)
    assert all(each == everywhere[0] for each in everywhere), everywhere
    return told


def dies(folder, how, where):
    """The same, and nobody catches it."""
    failing(how, int(where))


OTHERS = {"engine": "full", "compress": False, "memory": 1 << 28, "batch": 400, "root": 1,
          "answer": "all", "report": 3, "callback": 3, "nthreads": 0}  # fmt: skip


def failing(how, where):
    net = gbdnn.radixnet(1024, 6)
    X = Slow()
    options = {"cuts": [2, 4][:LAST], "batch": 500}
    if where != RANK:
        pass
    elif how == "broken":
        options["callback"] = broken
    elif how == "options":
        options["cuts"] = [9] * LAST
    elif how == "network":
        net = gbdnn.radixnet(1024, 7)
    elif how in OTHERS:
        options[how] = OTHERS[how]
    if how == "overflow":  # in layers of the rank `where`
        k = 2 * where + 1
        huge = gbdnn.Layer(sp.eye_array(1024) * 1e38, dtype="FP32")
        huge = gbdnn.Network([huge, huge])
        net = gbdnn.Network([*net[: k - 1], *huge, *net[k + 1 :]])
    gbdnn.pipeline(net, X if RANK == 0 else None, **options)


def broken(stats):
    raise RuntimeError("broken callback")


class Slow:
    """Features of which all but the first take a long time to read: an hour in all."""

    nrows, ncols, nvals, largest, dtype = 2_000_000, 1024, 10_000_000, 1.0, np.dtype("float32")

    def sparse_rows(self, start, stop):
        time.sleep(0 if start < 3000 else 1)
        rng = np.random.default_rng(start)
        X = sp.csr_array(np.float32(rng.random((stop - start, 1024)) < 0.3))
        return gbdnn.arrays.sparse_rows.SparseRows(
            X.indptr.astype(np.uint64), X.indices.astype(np.uint64), X.data, 1024
        )


def _matrix(sparse):
    return gbdnn.infer([], sparse)


def several(folder, *cases):
    """Cases of the same ranks, one after the other."""
    return {case: globals()[case](folder) for case in cases}


if __name__ == "__main__":
    case, folder, *more = sys.argv[1:]
    result = globals()[case](Path(folder), *more)
    if RANK == 0:
        sys.stdout.write(json.dumps(result, default=bool))
