"""What `gbdnn.graph.infer` takes at most, against the least `memory=` that it asks for.

    python tests/support/graph_memory.py AGGREGATE KIND NODES

prints one case: the peak of this process, beside what it held before the call, and what was told.
KIND is "dense" or "sparse" weights, "own" for layers with weights of nodes' own, "columns" for a
graph held by columns; NODES how many nodes are asked for, 0 for all.
"""

import ctypes
import gc
import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
from memory_grid import PEAK, status

NODES, EDGES, SIZES = 60_000, 900_000, (96, 128, 64)


def case(aggregate, kind, nodes):
    """Return what a call took beyond what the process held, and what was told."""
    import graphblas as gb

    import gbdnn
    from gbdnn import graph

    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, NODES, (2, EDGES))
    A = gb.Matrix.from_coo(
        rows, columns, rng.random(EDGES, np.float32), nrows=NODES, ncols=NODES,
        dup_op=gb.binary.first,
    )  # fmt: skip
    if kind == "columns":
        A.ss.config["format"] = "by_col"
    A.wait()
    X = rng.normal(size=(NODES, SIZES[0])).astype(np.float32)
    layers = []
    for nrows, ncols in pairwise(SIZES):
        W = rng.normal(size=(nrows, ncols)).astype(np.float32)
        if kind == "sparse":
            W[rng.random(W.shape) > 0.1] = 0
        layers.append(graph.Convolution(W, own=W if kind == "own" else None))
    some = None if not nodes else rng.integers(0, NODES, nodes)
    options = {"aggregate": aggregate, "nodes": some, "nthreads": 2}
    few = gb.Matrix.from_dense(np.eye(SIZES[0], dtype=np.float32))
    graph.infer(layers, np.eye(SIZES[0], dtype=np.float32), few, aggregate=aggregate, nthreads=2)
    try:
        graph.infer(layers, X, A, memory=0, **options)
    except gbdnn.ArgumentError as error:
        told = int(str(error).split("memory=")[2].split()[0])
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free is not to hide what is taken
    PEAK.write_text("5")
    before, files = status("VmRSS"), status("RssFile")
    Y = graph.infer(layers, X, A, memory=told, **options)
    taken = status("VmHWM") - before - (status("RssFile") - files)
    answer = Y.nrows * Y.ncols * (1 + 4) * (2 if nodes else 1)  # nodes may be asked for twice
    return {"told": told, "beyond": taken - answer, "entries": int(Y.nvals)}


def run(*arguments):
    """Return what a case gives in a process of its own, which gives memory back at once."""
    found = subprocess.run(
        [sys.executable, __file__, *map(str, arguments)],
        capture_output=True, text=True, env={**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


if __name__ == "__main__":
    aggregate, kind, nodes = sys.argv[1:]
    sys.stdout.write(json.dumps(case(aggregate, kind, int(nodes))) + "\n")
