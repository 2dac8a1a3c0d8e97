"""``gbdnn train``: train a sparse network."""

from __future__ import annotations

from functools import partial
from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

import gbdnn
from gbdnn.cli import options, outputs
from gbdnn.cli.terminal import Bar, say
from gbdnn.errors import ArgumentError, DivergenceError
from gbdnn.io import read_features, read_labels
from gbdnn.io.data import KINDS
from gbdnn.io.formats import require_folder_name
from gbdnn.io.store.folder import require_free
from gbdnn.training import defaults
from gbdnn.training.optimizers import OptimizerName, optimizer_named
from gbdnn.training.rewiring import RewiringName, adjustments_named
from gbdnn.viz.figures import require_plottable, save_figure, stacked

if TYPE_CHECKING:
    from gbdnn.training import EpochRecord


def train(
    features: Annotated[
        Path, Argument(metavar="FEATURES", help=f"{KINDS}; images are scaled to 0 to 1.")
    ],
    labels: Annotated[
        Path, Argument(metavar="LABELS", help="IDX, .npy, .npz, or text with one label per line.")
    ],
    out: Annotated[
        Path, Option("--out", "-o", metavar="NET", callback=outputs.named, help="Output: a store.")
    ],
    begin: Annotated[
        Path | None,
        Option("--from", metavar="NET", help="Start from this network instead of a random one."),
    ] = None,
    hidden_layer_sizes: Annotated[
        str | None,
        Option(metavar="N,N,...", help="Neurons of the hidden layers (default: 1024,1024)."),
    ] = None,
    density: Annotated[
        float | None, Option(help="Fraction of all possible edges (default: about 20 per neuron).")
    ] = None,
    epochs: Annotated[
        int | None,
        Option(min=1, help="Passes over the inputs (default: 20, more for less than 10,000)."),
    ] = None,
    batch_size: Annotated[
        int | None,
        Option(min=1, help="Inputs per step (default: 128, fewer for less than 4,096 inputs)."),
    ] = None,
    optimizer: Annotated[OptimizerName, Option(help="Optimizer, with a cosine schedule.")] = "adam",
    learning_rate: Annotated[
        float | None, Option(help="Initial learning rate (default: adam 0.01, sgd 0.05).")
    ] = None,
    rewire: Annotated[
        RewiringName | None, Option(help="Rewire the network during training (default: no).")
    ] = None,
    validation: Annotated[
        float | None, Option(help="Fraction of the inputs held out for validation.")
    ] = None,
    patience: Annotated[
        int | None, Option(min=1, help="Stop after this number of epochs without improvement.")
    ] = None,
    seed: Annotated[int, Option(min=0, help="Seed of edges, weights and batches.")] = 0,
    nthreads: Annotated[
        int | None, Option(callback=options.threads, help="Threads (default: one per core).")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        Option(metavar="FILE", help="Save after each epoch; the same command resumes from it."),
    ] = None,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE", help="Plot loss, accuracy and edges: .png, .svg or .pdf."),
    ] = None,
    force: outputs.Force = False,
) -> None:
    """Train a sparse network to classify inputs.

    Writes the network to a store, and prints loss, accuracy and number of edges for each epoch.

    \b
    Examples:
      gbdnn train images-idx3-ubyte.gz labels-idx1-ubyte.gz -o net
      gbdnn train X.npy y.npy -o net --rewire rigl --plot run.png
      gbdnn train X.npy y.npy -o better --from net --checkpoint run.safetensors
    """  # noqa: D301 -- \b keeps the lines of the examples
    if begin is not None and (hidden_layer_sizes, density) != (None, None):
        raise ArgumentError("--from cannot be combined with --hidden-layer-sizes or --density")
    sizes = _sizes(hidden_layer_sizes or "1024,1024")
    require_folder_name(out)
    require_free(out, stored=True, replace=force)
    if plot is not None:
        require_plottable(plot, replace=force)
    y = read_labels(labels)
    net = None if begin is None else gbdnn.load(begin, lazy=False)
    X = read_features(features, nrows=len(y), ncols=None if net is None else net.shape[0])
    if net is None:
        sizes = [X.ncols, *sizes, max(2, int(y.max(initial=0)) + 1)]
        net = defaults.network(sizes, density, seed=seed, dtype="FP32")
    epochs = epochs or defaults.epochs(X.nrows)
    with Bar() as bar:
        bar.begin("training")

        def report(record: EpochRecord) -> None:
            _report(record)
            bar.show(record.epoch + 1, epochs)

        try:
            run = gbdnn.train(
                net, X, y, epochs=epochs, batch_size=batch_size or defaults.batch(X.nrows),
                optimizer=optimizer_named(optimizer, learning_rate),
                adjustments=adjustments_named(rewire), validation=validation, patience=patience,
                seed=seed, nthreads=nthreads, checkpoint=checkpoint,
                callback=report,
            )  # fmt: skip
        except DivergenceError as err:  # the message ends with advice for Python users
            raise DivergenceError(str(err).partition(" (err.run")[0], err.run) from err
        gbdnn.save(run.network, out, "store", replace=force)
    if plot is not None:
        kinds = ("loss", "accuracy", "edges")
        curves = (partial(gbdnn.viz.plot_history, run, of=of) for of in kinds)
        save_figure(stacked(out.name, *curves), plot)
    best = "" if run.best is None else f", of epoch {run.best.epoch}"
    say(f"{out}: {len(run.network)} layers, {run.network.edges} edges{best}")


def _sizes(text: str) -> list[int]:
    try:
        return [int(size) for size in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"--hidden-layer-sizes {text}: expected integers separated by commas"
        ) from None


def _report(record: EpochRecord) -> None:
    words = f"epoch {record.epoch:3}: loss {record.loss:.4f}"
    for name in ("accuracy", "validation_loss", "validation_accuracy"):
        if (value := getattr(record, name)) is not None:
            words += f", {name.replace('_', ' ')} {value:.4f}"
    say(f"{words}, {record.edges} edges, {record.seconds:.2f} s")
