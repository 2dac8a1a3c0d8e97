"""Train the weights of a sparse network. Edges are fixed unless adjustments change them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gbdnn.arrays.checks import (
    as_nthreads,
    as_seed,
    as_word,
    require_callable,
    require_method,
    whole_number,
)
from gbdnn.errors import ArgumentError, ArgumentTypeError, ShapeError, naming
from gbdnn.kernels.together import startable
from gbdnn.model.network import Network, as_network
from gbdnn.runtime.threads import available, engaged, restored
from gbdnn.training.adjustments import end_of, require_adjustment
from gbdnn.training.data import TrainingData
from gbdnn.training.losses import CrossEntropy, default_loss, labels_of, loss_named, numbered
from gbdnn.training.optimizers import Adam, Cosine, between, optimizer_named
from gbdnn.training.run import LayerState, TrainingRun
from gbdnn.training.trainer import Trainer

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Sequence

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Layer
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.losses import Loss
    from gbdnn.training.optimizers import AnyOptimizer, Schedule
    from gbdnn.training.run import EpochRecord

__all__ = ["train", "trainable"]

_STRATIFIED = 0.1  # fraction of the inputs


def train(
    network: Network | TrainingRun | Iterable[Layer],
    X: MatrixLike,
    y: Any,
    *,
    sample_weight: Any = None,
    epochs: int = 20,
    batch_size: int | None = None,
    loss: Loss | str | None = None,
    optimizer: AnyOptimizer | str | None = None,
    schedule: Schedule | None = None,
    adjustments: Adjustment | Sequence[Adjustment] = (),
    input_dropout: float = 0.0,
    validation: float | tuple[MatrixLike, Any] | None = None,
    patience: float | None = None,
    seed: int | np.random.Generator | None = None,
    nthreads: int | None = None,
    callback: Callable[[EpochRecord], object] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TrainingRun:
    """Train a sparse network on minibatches.

    Parameters
    ----------
    network : Network, list of Layer, or TrainingRun
        Initial edges, weights and biases, for example from `gbdnn.training.erdos_renyi`, with the
        bias rule ``"all"``; or a run to continue, with its moments if the optimizer has the same
        class.
    X : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons of the first layer)
        As in `infer`. Arrays of the network's dtype are not copied. Minibatches of sparse features
        are converted to arrays. A store that needs more than 4 GiB, or a quarter of the machine's
        memory, is read in parts in each epoch.
    y : array_like, shape (inputs,) or (inputs, outputs)
        For ``"cross_entropy"``, labels from 0 to outputs - 1, or one string label per output, in
        the order of ``numpy.unique(y)``; for ``"binary_cross_entropy"``, 0 or 1 for each output;
        for ``"squared_error"``, numbers. Rows belong to those of X by position, whatever the index
        of a data frame.
    sample_weight : array_like, shape (inputs,), optional
        Weight of each input in losses, gradients and accuracies, relative to the mean weight.
    epochs : int, default 20
        Number of passes over the inputs; for a run, of additional passes.
    batch_size : int, default 128
        Inputs per minibatch. The last one of an epoch may be smaller.
    loss : {"cross_entropy", "binary_cross_entropy", "squared_error"} or `Loss`, optional
        Default: ``"cross_entropy"`` for labels (whole numbers), ``"binary_cross_entropy"`` for a
        matrix of the whole numbers 0 and 1, ``"squared_error"`` for other targets.
    optimizer : Adam, SGD, `Optimizer`, "adam" or "sgd", default Adam(0.01, weight_decay=0.2)
    schedule : Constant, Cosine or Stepwise, default Cosine()
        Learning rate schedule over the epochs of this call.
    adjustments : GroupLasso, MagnitudePruning, SET, RigL, `Adjustment`, or a sequence of them
        Changes between steps: shrink weights, remove or move edges.
    input_dropout : float, default 0.0
        Fraction of the features of each minibatch that are set to 0, less than 1. The others are
        divided by ``1 - input_dropout``.
    validation : float, "stratified", ("stratified", float), (X, y) or (X, y, sample_weight)
        Inputs to evaluate after each epoch: a random fraction of `X`, which is not used for
        training, or other inputs. ``"stratified"`` draws from each label in proportion, by default
        a tenth of the inputs.
    patience : int or math.inf, optional
        Stop after this number of epochs without a smaller validation loss, and return the network
        of the best epoch, also of the calls that a run continues. ``math.inf`` does not stop early.
        Epochs before `MagnitudePruning` has reached its density do not count; `GroupLasso` is
        refused. Default: return the last network.
    seed : int or numpy.random.Generator, default 0
        Seed of all random numbers. Equal calls give bitwise equal results for any number of
        threads.
    nthreads : int, optional
        As in `infer`.
    callback : callable, optional
        Called after each epoch with an `EpochRecord` that also has an attribute `network`, the
        network at this time. If it raises StopIteration, the call ends.
    checkpoint : path-like, optional
        File to which the run is saved after each epoch. If it exists, the same call resumes from
        it, with the results of an uninterrupted call, also after a callback ended the training.
        The network, the inputs and all options except `nthreads` and `callback` are compared with
        the file by hashes; objects by their class and what pickle stores of them. Lambdas and
        nested functions cannot be compared.

    Returns
    -------
    TrainingRun
        With `.network` and `.history`.

    Raises
    ------
    ShapeError
        The shapes of features, targets and layers do not match.
    ArgumentError, ArgumentTypeError
        An option is invalid, or the checkpoint belongs to another call.
    DivergenceError
        A loss or gradient is not finite, or exceeds 1e30 (FP64: 1e290): the message names epoch and
        layer, and ``err.run`` has the weights before that step. Or all outputs became equal in an
        epoch, whose weights ``err.run`` has.
    FormatError
        The checkpoint is damaged.
    MissingPackageError
        There are no compiled kernels for this processor, or a checkpoint needs safetensors or
        xxhash, which is not installed.
    KeyboardInterrupt
        After Ctrl-C, ``err.run`` and the checkpoint contain the complete epochs.

    Notes
    -----
    A step computes, for a minibatch Y_0 and layer by layer [1]_::

        Z = Y W + b;   Y' = min(max(Z, 0), clip)
        D = D' W'^T where 0 < Y < clip
        dW<W.S> = Y^T D;   db = sum of D over the inputs

    and updates weights and biases. The how-to on training has these equations in GraphBLAS.

    Training needs about 48 bytes per edge with SGD and 60 with Adam (FP64: 80 and 104), and twice
    the activations of a minibatch. Validation needs one more copy of the network.

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
    >>> run = gbdnn.train(net, X / 16, y, batch_size=32, epochs=10, validation=0.2)
    >>> run.history[-1].validation_accuracy > 0.9
    True
    >>> Y = gbdnn.infer(run.network, X / 16)
    """
    loss = loss_named(loss)
    if optimizer is not None:
        optimizer = optimizer_named(optimizer)
    if schedule is not None:
        require_method(
            schedule,
            "factors",
            "schedule must be Constant, Cosine, Stepwise or an object with their methods",
        )
    require_callable(callback, "callback")
    nthreads = as_nthreads(nthreads)
    threads = startable(nthreads or available())
    if patience is not None:
        if not (isinstance(patience, float) and patience == math.inf):
            patience = whole_number(patience, "patience", least=1)
        if validation is None:
            raise ArgumentError("patience= requires validation data; pass validation=0.2")
    with restored(), engaged(nthreads), np.errstate(under="ignore"):
        before = network if isinstance(network, TrainingRun) else _begun(network)
        seed = before.seed if seed is None else as_seed(seed)
        batch_size = before.batch_size if batch_size is None else batch_size
        batch_size = whole_number(batch_size, "batch_size", least=1)
        epochs = whole_number(epochs, "epochs", least=0)
        adjusting = _adjustments(adjustments, patience)
        input_dropout = between("input_dropout", input_dropout, 0, 1, below=True)
        net, labels = _lazy(before), labels_of(y)
        loss = loss or before.loss or (default_loss(y) if labels is None else CrossEntropy())
        y = numbered(y, labels, net.shape[1])
        data = TrainingData.of(X, y, net, loss, sample_weight)
        data, tested = _split(data, net, loss, validation, seed, labels)
        trainer = Trainer(
            before=before,
            data=data,
            tested=tested,
            loss=loss,
            optimizer=optimizer or before.optimizer or Adam(),
            schedule=schedule or before.schedule or Cosine(),
            adjustments=adjusting,
            batch_size=batch_size,
            input_dropout=input_dropout,
            seed=seed,
            epochs=epochs,
            patience=patience,
            nthreads=threads,
            callback=callback,
        )
        del before, net, network  # the trainer frees their weights
        return trainer.run(checkpoint)


def _split(
    data: TrainingData, net: Network, loss: Loss, validation: Any, seed: int, labels: Any
) -> tuple[TrainingData, TrainingData | None]:
    """Return the data for training, and for validation or None."""
    if validation is None:
        return data, None
    if isinstance(validation, str):
        validation = (validation, _STRATIFIED)
    if not isinstance(validation, tuple | list):
        part = between("validation", validation, 0, 1, below=True)
        return data.split(part, seed)
    if len(validation) not in (2, 3):
        raise ArgumentTypeError(
            f"validation must be (X, y) or (X, y, sample_weight), not {len(validation)} items"
        )
    if isinstance(validation[0], str):
        as_word(validation[0], "validation", ["stratified"])
        part = between("validation", validation[1], 0, 1, below=True)
        return data.split(part, seed, stratified=True)
    X, y, weights = (*validation, None)[:3]
    with naming("validation"):
        return data, TrainingData.of(X, numbered(y, labels, net.shape[1]), net, loss, weights)


def _begun(net: Any) -> TrainingRun:
    """Return a run without epochs."""
    layers = tuple(LayerState.begun(layer) for layer in trainable(net))
    return TrainingRun(layers, ())


def _lazy(run: TrainingRun) -> Network:
    """Return the network of a run's last epoch; its layers are created on access."""
    return Network.lazy([layer.info for layer in run.layers], lambda k: run.layers[k].layer())


def trainable(network: Any) -> Network:
    """Return a network in memory; raise if it cannot be trained."""
    with naming("network"):
        network = as_network(network).loaded()
    if not len(network):
        raise ArgumentError("the network has no layers; train needs at least one")
    for k, info in enumerate(network.infos):
        if 0 in info.shape:
            raise ShapeError(f"layer {k} is {info.nrows} x {info.ncols} and has no weights")
        if info.bias_rule == "entries" and info.largest_bias != 0:
            raise ArgumentError(
                f'layer {k} has the bias rule "entries", but training requires "all"; use'
                ' Layer(W, b, bias_rule="all") or gbdnn.training.initialized(network)'
            )
    return network


def _adjustments(given: Any, patience: float | None) -> tuple[Adjustment, ...]:
    """Return validated adjustments."""
    adjustments = tuple(given) if isinstance(given, list | tuple) else (given,)
    for adjustment in adjustments:
        require_adjustment(adjustment, "adjustments must be")
        if adjustment.every is not None:
            whole_number(adjustment.every, "every", least=1)
        if patience is not None and between("end", end_of(adjustment), 0, 1) == 1:
            raise ArgumentError(
                f"patience= cannot be combined with {type(adjustment).__name__}, whose last step"
                " only removes edges or neurons"
            )
    return adjustments
