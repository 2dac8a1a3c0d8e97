"""Training: the weights of a sparse network are learned on its own pattern."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from gbdnn.arrays.checks import as_nthreads, as_word, require_callable, require_method, whole_number
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, naming
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.threads import available, engaged
from gbdnn.training.adjustments import require_adjustment
from gbdnn.training.data import TrainingData, ValidationData
from gbdnn.training.inputs import MEMORY
from gbdnn.training.losses import default_loss, require_loss
from gbdnn.training.optimizers import SGD, between, require_optimizer
from gbdnn.training.run import LayerState, TrainingRun
from gbdnn.training.schedules import Cosine
from gbdnn.training.trainer import Trainer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Layer
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.losses import Loss
    from gbdnn.training.optimizers import Optimizer
    from gbdnn.training.run import CurrentEpoch
    from gbdnn.training.schedules import Schedule

__all__ = ["train", "trainable"]

_STRATIFIED = 0.1  # of the inputs


def train(
    net: Network | TrainingRun | Iterable[Layer],
    X: MatrixLike,
    y: Any,
    *,
    sample_weight: Any = None,
    epochs: int = 20,
    batch_size: int | None = None,
    loss: Loss | None = None,
    optimizer: Optimizer | None = None,
    schedule: Schedule | None = None,
    adjustments: Adjustment | Sequence[Adjustment] = (),
    input_dropout: float = 0.0,
    validation: float | tuple[MatrixLike, Any] | None = None,
    patience: int | None = None,
    min_delta: float = 0.0,
    keep: Literal["last", "best"] = "last",
    seed: int | None = None,
    nthreads: int | None = None,
    memory: int = MEMORY,
    callback: Callable[[CurrentEpoch], object] | None = None,
    progress: Callable[[int, int], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TrainingRun:
    """Learn the weights of a sparse network, on its own pattern, by minibatches.

    Parameters
    ----------
    net : Network, list of Layer, or TrainingRun
        Where to begin: edges, weights and biases (`gbdnn.training.erdos_renyi` makes some), under
        the bias rule ``"all"``. A run goes on where it ended, with its optimizer's moments.
    X : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons of the first layer)
        As in `infer`. Arrays of the network's dtype are read where they are; sparse features stay
        sparse, a minibatch at a time becomes an array.
    y : array_like, shape (inputs,) or (inputs, outputs)
        Labels from 0 to outputs - 1, each of which some input has, for `CrossEntropy`; numbers for
        `SquaredError`.
    sample_weight : array_like, shape (inputs,), optional
        At least 0: how much each input counts, in losses, gradients and accuracies, beside the
        mean of all weights. An input of weight 2 counts as one that is there twice.
    epochs : int, default 20
        How often all inputs are gone through; of a run that goes on, how often more.
    batch_size : int, default 128
        Inputs of a minibatch; the last one of an epoch may be smaller.
    loss : CrossEntropy or SquaredError, optional
        Default: `CrossEntropy` for labels (whole numbers), `SquaredError` for other targets.
    optimizer : SGD or Adam, default SGD(0.05, momentum=0.9)
    schedule : Constant, Cosine or Stepwise, default Cosine()
        Of the learning rate, over the epochs of this call; of a run that goes on, its own.
    adjustments : sequence of GroupLasso, MagnitudePruning, SET or RigL, or one of them
        What happens between steps: weights that are shrunk, edges that are removed or moved.
    input_dropout : float, default 0.0
        Part of the features, from 0 to less than 1, that are 0 in a minibatch, drawn anew for each;
        the others are divided by what is left.
    validation : float, "stratified", ("stratified", float), (X, y) or (X, y, sample_weight)
        Inputs to look at after each epoch: a part of those given (from 0 to 1, drawn by the seed,
        not trained with), or others. ``"stratified"``, a tenth if no part is given, has labels in
        their proportions. A label that is only in this part is a RuntimeWarning.
    patience : int, optional
        Stop after so many epochs without a smaller validation loss; the network is that of the best
        epoch.
    min_delta : float, default 0.0
        By how much a validation loss has to be smaller than the best one before.
    keep : {"last", "best"}, default "last"
        Which epoch's network the run has; with `patience` always the best one's.
    seed : int, default 0
        Of all that is drawn. Equal calls give equal bits, on any number of threads.
    nthreads : int, optional
        As in `infer`.
    memory : int, default 4 GiB
        Bytes for the rows of stored features that are held at a time: they are read at once if they
        fit, else in order and anew for each part of an epoch, with the same bits. The part of the
        store that is being read, some 150 MB at most, comes on top.
    callback : callable, optional
        Called with a `CurrentEpoch` after each epoch, an `EpochRecord` whose ``network`` is made
        when it is asked for. If it returns True, training ends.
    progress : callable, optional
        ``progress(done, all)``, in steps, several times a second.
    checkpoint : path-like, optional
        A file to which the run is written after each epoch, as `gbdnn.save` does. If it exists, the
        same call continues from it with the bits of an uninterrupted one. Layers and options are
        compared with the file's, inputs and targets are not.

    Returns
    -------
    TrainingRun
        With `.network` and `.history`.

    Raises
    ------
    ShapeError
        Features, targets and layers do not fit each other.
    ArgumentError, ArgumentTypeError
        A value or an option has no meaning: NaN, a label out of range, a label that no input has.
        The checkpoint belongs to another call.
    FormatError
        The checkpoint is damaged.
    DivergenceError
        A loss or a gradient was not finite, or beyond 1e30 (FP64: 1e290), and ``err.run`` has the
        weights of the step before; or weights and losses
        have become far larger, and after an epoch a layer fires for no input, so that all answers
        are equal: ``err.run`` ends there. The message names epoch and layer.
    KeyboardInterrupt
        After Ctrl-C ``err.run`` has the epochs that were complete, and so has the checkpoint.
    MissingPackageError
        numba is not installed; safetensors is not, and a checkpoint is asked for.

    Notes
    -----
    A step computes, for a minibatch Y_0 and layer by layer [1]_::

        Z = Y W + b;   Y' = min(max(Z, 0), clip)
        D = D' W'^T where 0 < Y < clip
        dW<W.S> = Y^T D;   db = sum of D over the inputs

    and updates weights and biases. What is not an edge is never computed. The equations in
    GraphBLAS are `gbdnn.training.gradients`.

    Beyond features and network: about 48 bytes per edge with SGD, 60 with Adam (FP32; 80 and 104
    in FP64), and the activations of one minibatch twice. Validation takes a network more.

    References
    ----------
    .. [1] S. Alford, R. Robinett, L. Milechin, J. Kepner, "Training Behavior of Sparse Neural
       Network Topologies", HPEC 2019.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> import gbdnn
    >>> X, y = load_digits(return_X_y=True)
    >>> net = gbdnn.training.erdos_renyi([64, 256, 10], density=0.2)
    >>> run = gbdnn.train(net, X / 16, y, batch_size=32, validation=0.2)
    >>> run.history[-1].validation_accuracy > 0.9
    True
    >>> Y = gbdnn.infer(run.network, X / 16)
    """
    require_loss(loss)
    if optimizer is not None:
        require_optimizer(optimizer)
    if schedule is not None:
        require_method(
            schedule,
            "factors",
            "schedule is Constant, Cosine or Stepwise of gbdnn.training, or what has their methods",
        )
    require_callable(callback, "callback")
    require_callable(progress, "progress")
    memory = whole_number(memory, "memory", least=1)
    nthreads = as_nthreads(nthreads)
    threads = nthreads or available()
    if patience is not None:
        whole_number(patience, "patience", least=1)
    between("min_delta", min_delta, 0, math.inf, below=True)
    keeps_best = as_word(keep, "keep", ["last", "best"]) == "best" or patience is not None
    if keeps_best and validation is None:
        what = "keep" if patience is None else "patience"
        raise ArgumentError(f"{what}: there is no validation; validation=0.2, for example")
    with engaged(nthreads):
        before = net if isinstance(net, TrainingRun) else _begun(net)
        seed = _whole("seed", seed, before.seed, least=0)
        batch_size = _whole("batch_size", batch_size, before.batch_size)
        epochs = whole_number(epochs, "epochs", least=0)
        input_dropout = between("input_dropout", input_dropout, 0, 1, below=True)
        adjusting = _adjustments(adjustments)
        loss = loss or before.loss or default_loss(y)
        data = TrainingData.of(X, y, _lazy(before), loss, sample_weight, memory)
        data, tested = _split(data, _lazy(before), loss, validation, seed, memory)
        trainer = Trainer(
            before=before,
            data=data,
            tested=tested,
            loss=loss,
            optimizer=optimizer or before.optimizer or SGD(),
            schedule=schedule or before.schedule or Cosine(),
            adjustments=adjusting,
            batch_size=batch_size,
            input_dropout=input_dropout,
            seed=seed,
            epochs=epochs,
            patience=patience,
            min_delta=min_delta,
            keeps_best=keeps_best,
            nthreads=threads,
            callback=callback,
            progress=progress,
        )
        del before, net  # the trainer lets their weights go
        return trainer.run(checkpoint)


def _split(
    data: TrainingData, net: Network, loss: Loss, validation: Any, seed: int, memory: int
) -> tuple[TrainingData, ValidationData | None]:
    """Return what to train with, and what to look at after each epoch."""
    tested, labels = None, data.targets
    if loss.every_label:
        data.require_all_labels(net.shape[1])
    if isinstance(validation, str):
        validation = (validation, _STRATIFIED)
    if isinstance(validation, tuple) and isinstance(validation[0], str):
        word, validation = _pair(validation)[:2]
        stratified = as_word(word, "validation", ["stratified"]) == "stratified"
    else:
        stratified = False
    if isinstance(validation, tuple):
        X, y, weights = (*_pair(validation), None)[:3]
        tested = ValidationData.of(X, y, net, loss, weights, memory)
    elif validation is not None:
        part = between("validation", validation, 0, 1, below=True)
        data, tested = data.split(part, seed, stratified=stratified)
        if labels.ndim == 1 and len(left := np.setdiff1d(labels, labels[data.rows])):
            warnings.warn(
                f"validation: label {left[0]} is not among the inputs that are trained with",
                RuntimeWarning,
                stacklevel=3,
            )
    return data, tested


def _begun(net: Any) -> TrainingRun:
    """Return a run without epochs."""
    layers = tuple(LayerState.begun(layer) for layer in trainable(net))
    return TrainingRun(layers, ())


def _lazy(run: TrainingRun) -> Network:
    """Return the network of a run's last epoch, whose layers are made when they are asked for."""
    return Network.lazy([each.info for each in run.layers], lambda k: run.layers[k].layer())


def trainable(net: Any) -> Network:
    """Return a network, in memory, or raise what keeps it from being trained."""
    with naming("net"):
        network = as_network(net).loaded()
    if not len(network):
        raise ArgumentError("train: the network has no layers")
    for k, info in enumerate(network.infos):
        if 0 in info.shape:
            raise ShapeError(f"layer {k}: {info.nrows} x {info.ncols} has nothing to learn")
        if info.bias_rule == "entries" and info.largest_bias != 0:
            raise ArgumentError(
                f'layer {k} has the bias rule "entries"; training computes with "all":'
                ' Layer(W, b, bias_rule="all"), or gbdnn.training.initialized(net)'
            )
    return network


def _adjustments(given: Any) -> tuple[Adjustment, ...]:
    found = tuple(given) if isinstance(given, list | tuple) else (given,)
    for each in found:
        require_adjustment(each, "adjustments are")
        if each.every is not None:
            whole_number(each.every, "every", least=1)
    return found


def _whole(name: str, given: int | None, before: int, least: int = 1) -> int:
    return before if given is None else whole_number(given, name, least=least)


def _pair(validation: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(validation) not in (2, 3):
        raise ArgumentTypeError(
            f"validation: (X, y) or (X, y, sample_weight), not a tuple of {len(validation)}"
        )
    return validation
