"""Sattar, Arifuzzaman (TensorFlow), table I: memory of the twelve networks.

    python benchmarks/papers/sattar_table1.py --limit 4 --json memory.json

The paper's figures are 1 KiB per neuron and layer, not the size of dense matrices, which grow with
the square of the neurons. They are compared with dense FP32 matrices, CSR matrices in FP32, a gbdnn
store on disk, and the memory of a process, without its libraries, after an inference of 64 inputs.
Stores and processes are measured for networks with up to ``--limit`` GiB in CSR format.

N. S. Sattar, S. Arifuzzaman, "Data Parallel Large Sparse Deep Neural Network on GPU", IPDPS
Workshops 2020.
"""

from __future__ import annotations

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import gbdnn

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import memory
import papers

GIB = 2**30
_INPUTS = 64


def measure(
    study: papers.Study,
    neurons: int,
    layers: int,
    limit: Annotated[float, typer.Option(help="Largest measured network in GiB.")] = 1.0,
) -> None:
    """Print the published, computed and measured sizes of a network."""
    (published,) = papers.tables()["memory"]
    sparse = layers * (32 * neurons * 8 + 4 * (neurons + 1)) / GIB
    row: dict[str, Any] = {
        "network": f"{neurons} x {layers}",
        "published": published["gib"][str(neurons)][str(layers)],
        "dense, FP32": 4 * neurons**2 * layers / GIB,
        "sparse rows, FP32": sparse,
    }
    if sparse <= limit:
        depth = 8 if study.quick else layers
        # A new process for each network, since freed memory may stay with the process.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            found = pool.submit(measured, neurons, depth).result()
        scale = layers / depth
        row |= {
            "store": scale * found["store"] / GIB,
            "in use here": None if found["used"] is None else scale * found["used"] / GIB,
            "answer": "right" if found["right"] else "WRONG",
        }
    study.more["limit"] = limit
    study.rows.append(row)
    print(row, flush=True)


def measured(neurons: int, layers: int) -> dict[str, Any]:
    """Return the bytes of a network in a store and in memory; compare two engines."""
    images = gbdnn.gallery.digits()[:_INPUTS]
    X = gbdnn.gallery.features_from_images(images, neurons)
    gbdnn.infer(gbdnn.radixnet(neurons, 1), X)
    before = memory.now()
    net = gbdnn.radixnet(neurons, layers)
    Y = gbdnn.infer(net, X, engine="auto")
    after = memory.now()
    with tempfile.TemporaryDirectory() as name:
        gbdnn.save(net, Path(name) / "net")
        store = sum(file.stat().st_size for file in Path(name).rglob("*") if file.is_file())
    truth = gbdnn.challenge.scipy_check.scipy_categories(net, X)
    return {
        "store": store,
        "used": None if before is None or after is None else after - before,
        "right": bool(np.array_equal(gbdnn.categories(Y), truth)),
    }


if __name__ == "__main__":
    papers.run(measure, "Sattar, Arifuzzaman, table I, GiB", papers.SIZES)
