"""Edges per second at which a network comes into memory: from a store, and from TSV files.

    python benchmarks/overheads/loading.py --json loading.json

Files are warm: they have just been written. A network from a store is read with its checksums
verified, every layer materialised.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import problems
import report
from turns import repeated


def main(
    sizes: Annotated[
        str, typer.Option(help="Neurons x layers, several by comma.")
    ] = "1024x1920,4096x480,16384x120",
    rounds: Annotated[int, typer.Option(min=1, help="Timed reads of a store.")] = 7,
    tsv_layers: Annotated[int, typer.Option(min=1, help="Layers that are read from TSV.")] = 60,
    nthreads: Annotated[int, typer.Option(min=1)] = 2,
    json_file: problems.Json = None,
) -> None:
    """Time reading."""
    import graphblas as gb

    import gbdnn
    from gbdnn.challenge import read_challenge_network
    from gbdnn.io import write_network

    problem = problems.build(1024, 1, 16)
    found = report.facts(problem, rounds=rounds, nthreads=nthreads)
    del found["problem"]
    rows = []
    for size in sizes.split(","):
        neurons, layers = (int(word) for word in size.split("x"))
        net = gbdnn.radixnet(neurons, layers, lazy=True)
        with tempfile.TemporaryDirectory() as folder, gb.ss.Context(nthreads=nthreads):
            gbdnn.save(net, Path(folder) / "store")
            store = repeated(lambda at=folder: gbdnn.load(Path(at) / "store").loaded(), rounds)
            few = net[:tsv_layers]
            write_network(few.loaded(), Path(folder) / "tsv")
            tsv = repeated(
                lambda at=folder, n=neurons: read_challenge_network(Path(at) / "tsv", n), 2
            )
        rows.append(
            {
                "neurons": neurons,
                "layers": layers,
                "edges": net.edges,
                "store_seconds": store,
                "store_rate": net.edges / median(store),
                "tsv_rate": few.edges / median(tsv),
            }
        )
    found["sizes"] = rows
    report.table(
        ["network", "edges", "store, edges/s", "TSV, edges/s"],
        [
            (
                f"{row['neurons']} x {row['layers']}",
                f"{row['edges']:,}",
                f"{row['store_rate']:.3g}",
                f"{row['tsv_rate']:.3g}",
            )
            for row in rows
        ],
    )
    report.write(json_file, found)


if __name__ == "__main__":
    typer.run(main)
