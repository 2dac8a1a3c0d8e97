"""The gradient of a loss in GraphBLAS, equal to that of the compiled training steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.kernels.gradients import LayerGradient, backward, forward
from gbdnn.training.data import TrainingData
from gbdnn.training.losses import default_loss, loss_named
from gbdnn.training.train import trainable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gbdnn.arrays.matrices import MatrixLike
    from gbdnn.model.layer import Layer
    from gbdnn.model.network import Network
    from gbdnn.training.losses import Loss

__all__ = ["LossGradient", "gradients"]


class LossGradient(NamedTuple):
    """Loss and gradient.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> net = gbdnn.training.erdos_renyi([4, 2], density=1)
    >>> found = gbdnn.training.gradients(net, np.eye(4), [0, 1, 0, 1])
    >>> found.layers[0].W.nvals, found.layers[0].b.shape
    (8, (2,))
    """

    loss: float
    """Mean loss over the inputs."""

    layers: list[LayerGradient]
    """Gradients ``W`` (Matrix with the pattern of the weights) and ``b`` (ndarray) per layer."""


def gradients(
    net: Network | Iterable[Layer],
    X: MatrixLike,
    y: Any,
    *,
    loss: Loss | str | None = None,
    sample_weight: Any = None,
) -> LossGradient:
    """Return the loss and its gradient with respect to every weight and bias.

    Parameters
    ----------
    net : Network or list of Layer
        With the bias rule ``"all"``.
    X : Matrix, SciPy sparse or 2-D ndarray, shape (inputs, neurons of the first layer)
        One minibatch. It is converted to an array, and the activations of all layers are kept.
    y : array_like, shape (inputs,) or (inputs, outputs)
        As for `train`.
    loss : CrossEntropy, BinaryCrossEntropy, SquaredError, `Loss` or name, optional
    sample_weight : array_like, shape (inputs,), optional
        As for `train`.

    Returns
    -------
    LossGradient
        ``.loss`` and, for each of ``.layers``, ``W`` and ``b``.

    Notes
    -----
    Each equation of `train` is one GraphBLAS operation; the gradient of the edges is
    ``dW(W.S) << plus_times(Y.T @ D)``. This is about ten times slower than the compiled steps: it
    reaches 1 G multiply-adds per second and core.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> net = gbdnn.Network([gbdnn.Layer(np.array([[1.0], [2.0]]), activation="identity")])
    >>> found = gbdnn.training.gradients(net, np.array([[1.0, 1.0]]), np.array([[2.0]]))
    >>> found.loss, found.layers[0].W.to_dense().tolist(), found.layers[0].b.tolist()
    (1.0, [[2.0], [2.0]], [2.0])
    """
    loss = loss_named(loss) or default_loss(y)
    network = trainable(net)
    data = TrainingData.of(X, y, network, loss, sample_weight)
    weights = data.weights / data.weights.mean()
    array = np.empty((data.inputs.nrows, network.shape[0]), network.infos[0].dtype)
    data.inputs.take(data.rows, array)
    layers = list(network)
    activations = forward(layers, array)
    answer = activations[-1].to_dense()
    value = float((loss.losses(answer, data.targets) * weights).mean())
    gradient = loss.gradient(answer, data.targets) * weights[:, np.newaxis].astype(answer.dtype)
    found = backward(layers, activations, gradient)
    return LossGradient(value, found)
