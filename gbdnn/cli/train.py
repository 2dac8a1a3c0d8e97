"""``gbdnn train``: train a sparse network."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 -- typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

import gbdnn
from gbdnn.cli import options
from gbdnn.cli import outputs as places
from gbdnn.cli.bars import Bars
from gbdnn.cli.terminal import say
from gbdnn.errors import ArgumentError, DivergenceError, ShapeError
from gbdnn.io import read_features, read_labels
from gbdnn.io.datasets import KINDS, tells_shape
from gbdnn.io.formats import holds_run, of_ending, read_network
from gbdnn.training import erdos_renyi
from gbdnn.training.optimizers import OptimizerName, optimizer_named
from gbdnn.training.rewiring import RewiringName, adjustments_named
from gbdnn.viz.figures import require_plottable, save_figure

if TYPE_CHECKING:
    from gbdnn.training import EpochRecord

_HIDDEN, _DENSITY = (1024, 1024), 0.05


def train(
    features: Annotated[Path, Argument(metavar="FEATURES", help=f"{KINDS}; images become 0 to 1.")],
    labels: Annotated[
        Path,
        Argument(metavar="LABELS", help="IDX, .npy, .npz, or a whole number from 0 in each line."),
    ],
    out: Annotated[
        Path, Option("--out", "-o", metavar="NET", help="Output: a store, for gbdnn infer.")
    ],
    begin: Annotated[
        Path | None,
        Option("--from", metavar="NET", help="Begin with this network, or go on with a --run."),
    ] = None,
    hidden: Annotated[
        options.Numbers | None,
        options.numbers("N,N,...", "Neurons of the hidden layers (default: 1024,1024)."),
    ] = None,
    density: Annotated[
        float | None,
        Option(help=f"Edges over those that there could be (default: {_DENSITY})."),
    ] = None,
    distribution: Annotated[
        Literal["erk", "uniform"] | None,
        Option(help="How edges are shared out among layers (default: erk)."),
    ] = None,
    epochs: Annotated[int, Option(min=1, help="How often all inputs are gone through.")] = 20,
    batch_size: Annotated[
        int | None, Option(min=1, help="Inputs of a step (default: 128).")
    ] = None,
    optimizer: Annotated[
        OptimizerName | None, Option(help="Its schedule is a cosine (default: sgd, or the run's).")
    ] = None,
    learning_rate: Annotated[
        float | None, Option(help="At the beginning (default: sgd 0.05, adam 0.001).")
    ] = None,
    rewire: Annotated[
        RewiringName | None, Option(help="Move edges while training (default: no).")
    ] = None,
    input_dropout: Annotated[
        float, Option(help="Part of the features that are 0 in a step.")
    ] = 0.0,
    validation: Annotated[
        float | None, Option(help="Part of the inputs to look at, and not to train with.")
    ] = None,
    patience: Annotated[
        int | None,
        Option(min=1, help="End after so many epochs without a smaller validation loss."),
    ] = None,
    seed: Annotated[int, Option(min=0, help="Of edges, weights and the order of inputs.")] = 0,
    dtype: Annotated[
        Literal["FP32", "FP64"] | None, Option(help="Of the weights (default: FP32, or --from's).")
    ] = None,
    nthreads: Annotated[int | None, Option(min=1, help="Threads (default: one per core).")] = None,
    checkpoint: Annotated[
        Path | None,
        Option(metavar="FILE", help="Written after each epoch; the same command goes on from it."),
    ] = None,
    keep_run: Annotated[
        Path | None,
        Option("--run", metavar="RUN", help="Write the run to a file, for --from."),
    ] = None,
    force: places.Force = False,
    plot: Annotated[
        Path | None,
        Option(metavar="FILE", help="Draw loss, accuracy and edges: .png, .svg or .pdf."),
    ] = None,
) -> None:
    """Train a sparse network on its own pattern to tell labels apart, and write it into a store.

    Without --from, edges and weights are drawn at random. A line for each epoch: the loss and the
    share of right answers of the inputs trained with, those of --validation, the number of edges.
    """
    if begin is not None:
        drawn = {"--hidden": hidden, "--density": density, "--distribution": distribution}
        options.refuse("--from: the network has its layers", drawn)
    options.warn_of_threads(nthreads)
    target = of_ending(out) or "store"
    if target != "store":
        raise ArgumentError(f"{out}: NET is a store; gbdnn convert makes {target} of it")
    places.require_free(out, stored=True, force=force)
    if keep_run is not None:
        places.require_free(keep_run, stored=False, force=force)
    if plot is not None:
        require_plottable(plot)
    before: Any = None
    if begin is not None and holds_run(begin):
        options.refuse("--from: the run has its weights", {"--dtype": dtype})
        before = gbdnn.load(begin)
    own = before is not None and optimizer is None and learning_rate is None
    settings: dict[str, Any] = {
        "optimizer": None if own else optimizer_named(optimizer or "sgd", learning_rate),
        "adjustments": adjustments_named(rewire),
    }
    y = read_labels(labels)
    net = None if before is None else before.network
    if begin is not None and before is None:
        net = read_network(begin, dtype=dtype).loaded()
    if tells_shape(features):
        X = read_features(features, dtype=dtype)
    else:
        neurons = None if net is None else net.shape[0]
        X = read_features(features, nrows=len(y), ncols=neurons, dtype=dtype)
    if X.shape[0] != len(y):
        raise ShapeError(f"{labels} has {len(y)} labels, {features} has {X.shape[0]} inputs")
    if net is None:
        outputs = max(2, int(y.max(initial=0)) + 1)
        net = erdos_renyi(
            [X.shape[1], *(hidden or _HIDDEN), outputs], _DENSITY if density is None else density,
            distribution=distribution or "erk", seed=seed, dtype=dtype or "FP32",
        )  # fmt: skip
    with Bars() as bars:
        show = bars.add("training steps")
        try:
            run = gbdnn.train(
                before or net, X, y, epochs=epochs, batch_size=batch_size,
                input_dropout=input_dropout, validation=validation, patience=patience, seed=seed,
                nthreads=nthreads, checkpoint=checkpoint, progress=show, callback=_tell, **settings,
            )  # fmt: skip
        except DivergenceError as err:
            raise DivergenceError(str(err).partition(" (err.run")[0], err.run) from err
        with bars.busy("writing"):
            gbdnn.save(run.network, out)
            if keep_run is not None:
                gbdnn.save(run, keep_run)
    best = "" if run.best is None else f", of epoch {run.best.epoch}"
    say(f"{out}: {len(run.network)} layers, {run.network.edges} edges{best}")
    if plot is not None:
        save_figure(gbdnn.viz.history_figure(run), plot)


def _tell(record: EpochRecord) -> None:
    words = [f"epoch {record.epoch:3}: loss {record.loss:.4f}"]
    if record.accuracy is not None:
        words.append(f"accuracy {record.accuracy:.4f}")
    if record.validation_loss is not None:
        words.append(f"validation loss {record.validation_loss:.4f}")
    if record.validation_accuracy is not None:
        words.append(f"accuracy {record.validation_accuracy:.4f}")
    say(", ".join([*words, f"{record.edges} edges, {record.seconds:.2f} s"]))
