"""``gbdnn infer``: run features through a network."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import gbdnn
from gbdnn.cli import options, outputs
from gbdnn.cli import workers as pools
from gbdnn.cli.terminal import Bar, kernels, say
from gbdnn.distributed.stats import edges_by_kernel
from gbdnn.io import (
    open_features,
    read_features,
    write_categories,
    write_features,
    write_labels,
)
from gbdnn.io.data import KINDS
from gbdnn.io.formats import CATEGORIES, FEATURES, LABELS, target
from gbdnn.io.store.folder import require_free
from gbdnn.runtime.optional import require

if TYPE_CHECKING:
    import graphblas as gb


def infer(
    network: Annotated[
        Path, Argument(metavar="NETWORK", help="Network, in any format of gbdnn convert.")
    ],
    features: Annotated[Path, Argument(metavar="FEATURES", help=f"Features: {KINDS}.")],
    out: Annotated[
        Path,
        Option("-o", "--out", metavar="OUT", callback=outputs.named, help="A store, a file or -."),
    ],
    to: outputs.To = None,
    inputs: Annotated[
        int | None, Option(min=1, help="Number of inputs of a tsv file whose last rows are empty.")
    ] = None,
    categories: Annotated[
        bool, Option("--categories", help="Write the inputs with a nonzero activation.")
    ] = False,
    argmax: Annotated[
        bool, Option("--argmax", help="Write the 0-based index of each input's largest activation.")
    ] = False,
    bias: options.Bias = None,
    clip: options.Clip = None,
    dtype: options.DType = None,
    engine: options.Engine = "auto",
    memory: options.Memory = "512MiB",
    nthreads: options.NThreads = None,
    workers: pools.Workers = None,
    scheduler: pools.Scheduler = None,
    mpi: pools.Mpi = False,
    pipeline: Annotated[
        bool, Option("--pipeline", help="Split the layers over MPI ranks; needs mpiexec -n 4 ...")
    ] = False,
    force: Annotated[
        bool, Option("--force", help="Replace other existing output, complete or not.")
    ] = False,
) -> None:
    """Run features through a network and write the activations.

    Networks and features in stores may be larger than memory. A store is written part by part;
    after an interruption, the same command computes the missing parts. Activations are also written
    as .npy, .npz or .mtx, labels as .csv or .npy, if OUT has this suffix. Other text is
    tab-separated as in the challenge's files, with one line per entry, category or label; with -o -
    it goes to standard output.

    \b
    Examples:
      gbdnn infer net images.tsv.gz -o activations.tsv.gz
      gbdnn infer net X -o Y --memory 4GiB
      gbdnn infer model.onnx X -o ids.tsv --categories
      gbdnn infer classifier X.npy -o labels.tsv --argmax
    """  # noqa: D301 -- \b keeps the lines of the examples
    options.exclusive(argmax=argmax, categories=categories)
    options.exclusive(workers=workers, scheduler=scheduler, mpi=mpi, pipeline=pipeline)
    known: Any = LABELS if argmax else CATEGORIES if categories else FEATURES
    form = target(out, to, known, "to")
    stored = form == "store"
    settings: dict[str, Any] = {"engine": engine, "memory": memory, "nthreads": nthreads}
    what = "labels" if argmax else "categories" if categories else "activations"
    in_parts = stored and what == "activations" and not pipeline
    leads = not pipeline or _rank() == 0
    if leads:
        require_free(out, stored=stored, replace=force, resumes=in_parts)
    records: list[Any] = []
    with Bar() as bar, pools.executor(workers, scheduler, mpi) as executor:
        bar.begin("reading")
        given = options.reading(bias=bias, clip=clip, dtype=dtype)
        net = gbdnn.load(network, progress=bar.show, **given)
        X = _features(features, net, inputs) if leads else None
        if executor is not None:

            def add(record: Any) -> None:
                records.append(record)
                bar.show(record.done, record.batches)

            settings["executor"] = gbdnn.distributed.Workers(executor, callback=add)
        with bar.inference() as run:
            if pipeline:
                Y: Any = gbdnn.distributed.pipeline(net, X, **settings)
            elif in_parts:
                done: list[int] = []  # inputs, at first those of earlier runs
                Y = gbdnn.infer_to_store(
                    net, X, out, replace=force, progress=lambda n, _: done.append(n), **settings
                )
            else:
                Y = gbdnn.infer(net, X, **settings)
        if not leads:
            return
        found = f"activations of {Y.shape[0]} inputs, {Y.nvals} entries"
        if not in_parts:
            bar.begin("writing")
            found = _write(Y, out, what, form, force)
        elif done[0]:
            found += f"; {done[0]} inputs were there from an earlier run"
    words = [f"{out}: {found}"]
    if records or executor is not None:
        words.append(pools.summary(records))
    ran = kernels(edges_by_kernel(records) if records else run.kernels)
    say("\n".join([*words, f"engine: {engine}, kernels {ran}"]), out)


def _rank() -> int:
    """Return the MPI rank of this process; rank 0 reads features and writes the output."""
    mpi = require("mpi4py.MPI", "mpi", "--pipeline needs mpi4py and MPI")
    return int(mpi.COMM_WORLD.rank)


def _features(path: Path, net: gbdnn.Network, inputs: int | None) -> Any:
    """Return features from a file, or lazily from a store."""
    if path.is_dir() and inputs is None:
        return open_features(path)
    return read_features(path, nrows=inputs, ncols=net.shape[0], dtype=net.dtype)


def _write(Y: gb.Matrix, path: Path, what: str, form: str, force: bool) -> str:
    """Write activations, categories or labels, and return a summary."""
    if what == "labels":
        write_labels(gbdnn.argmax(Y), path, form, replace=force)
        return f"labels of {Y.nrows} inputs"
    if what == "categories":
        ids = gbdnn.categories(Y)
        write_categories(ids, path, form, replace=force)
        return f"{len(ids)} of {Y.nrows} inputs have a category"
    write_features(Y, path, form, replace=force)
    return f"activations of {Y.nrows} inputs, {Y.nvals} entries"
