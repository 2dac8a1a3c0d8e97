"""Training runs: network, history, and the state for continued training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbdnn.errors import ArgumentError
from gbdnn.kernels.trainable import TrainableLayer, edges_of, layer_of
from gbdnn.model.network import Network
from gbdnn.model.tables import Table
from gbdnn.runtime.forks import cached_property

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gbdnn.model.layer import Layer
    from gbdnn.model.layer_info import LayerInfo
    from gbdnn.training.losses import Loss
    from gbdnn.training.optimizers import AnyOptimizer, Schedule

__all__ = [
    "CurrentEpoch",
    "EpochRecord",
    "LayerState",
    "TrainingRun",
    "states_of",
    "without_moments",
]


class EpochRecord(NamedTuple):
    """Record of one epoch of training.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> net = gbdnn.training.erdos_renyi([4, 2], density=1)
    >>> run = gbdnn.train(net, np.eye(4), [0, 1, 0, 1], epochs=2)
    >>> [(record.epoch, record.edges) for record in run.history]
    [(0, 8), (1, 8)]
    """

    epoch: int
    """Number of the epoch from 0, over all calls of a run."""

    loss: float
    """Mean training loss; each input's loss before the update that it takes part in."""

    accuracy: float | None
    """Fraction of correctly classified inputs; None if targets are not labels."""

    validation_loss: float | None
    """Mean loss of the validation inputs after the epoch; None without validation."""

    validation_accuracy: float | None
    """Accuracy of the validation inputs after the epoch."""

    learning_rate: float
    """Learning rate of the last step."""

    edges: int
    """Number of nonzero weights after the epoch."""

    seconds: float
    """Wall time in seconds, without validation."""


class CurrentEpoch(EpochRecord):
    """Record that `train` passes to its callback: an `EpochRecord` with the current network."""

    layers: tuple[LayerState, ...] | None = None

    @property
    def network(self) -> Network:
        """The network after the epoch, during the callback."""
        if self.layers is None:
            raise ArgumentError(
                "network is available only during the callback; store it there to keep it"
            )
        return network_of(self.layers)


class LayerState(NamedTuple):
    """State of a layer between epochs: edges sorted by number, and all learned values."""

    info: LayerInfo
    numbers: np.ndarray
    """Numbers of `edges`, as uint32 if they fit."""

    weights: np.ndarray
    bias: np.ndarray
    moments: tuple[np.ndarray, ...] = ()
    bias_moments: tuple[np.ndarray, ...] = ()

    @property
    def edges(self) -> np.ndarray:
        """Sorted numbers ``column * nrows + row``, int64, including edges of weight 0."""
        return self.numbers.astype(np.int64, copy=False)

    @classmethod
    def begun(cls, layer: Layer) -> LayerState:
        """Return the state of an untrained layer."""
        return cls(layer.info, *edges_of(layer))

    @classmethod
    def of(cls, layer: TrainableLayer) -> LayerState:
        """Return a copy of a layer's state."""
        return cls(
            layer.info,
            layer.compact_numbers,
            layer.numbered(layer.weights),
            layer.by_neuron(layer.bias),
            tuple(layer.numbered(moment) for moment in layer.moments),
            tuple(layer.by_neuron(moment) for moment in layer.bias_moments),
        )

    def trainable(self, moments: int) -> TrainableLayer:
        """Return a layer for training with this number of moments per weight, 0 without a state."""
        layer = (self.info, self.numbers, self.weights, self.bias)
        if self.moments:
            return TrainableLayer(*layer, self.moments, self.bias_moments)
        zeros = (np.zeros(len(array), self.info.dtype) for array in (self.weights, self.bias))
        of_weights, of_biases = ([array] * moments for array in zeros)
        return TrainableLayer(*layer, of_weights, of_biases)

    def layer(self) -> Layer:
        """Return the layer without edges of weight 0."""
        return layer_of(self.info, self.numbers, self.weights.copy(), self.bias.copy())


def without_moments(layers: Iterable[LayerState]) -> tuple[LayerState, ...]:
    """Return states for inference, or for training by another optimizer."""
    return tuple(layer._replace(moments=(), bias_moments=()) for layer in layers)


def states_of(layers: Iterable[TrainableLayer]) -> tuple[LayerState, ...]:
    """Return the states of some layers."""
    return tuple(LayerState.of(layer) for layer in layers)


@dataclass(frozen=True, repr=False, eq=False)
class TrainingRun:
    """The result of `train`: the trained network, its history, and the state to continue from.

    Pass the run to `train` to continue with the same optimizer and its moments. `write_run` and
    `read_run` store it in a file.

    Attributes
    ----------
    network : Network
        The trained network, for `infer` and `save`.
    history : tuple of EpochRecord
        One record per epoch.
    loss, optimizer, schedule, batch_size, seed
        Options of the training, which `train` reuses unless it gets others.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 64, 2], density=0.5)
    >>> run = gbdnn.train(net, X, y, epochs=30)
    >>> run.history[-1].accuracy > 0.9
    True
    >>> len(gbdnn.train(run, X, y, epochs=5).history)
    35
    """

    layers: tuple[LayerState, ...]
    """Learned values of all layers after the last epoch."""

    history: tuple[EpochRecord, ...]
    loss: Loss | None = None
    optimizer: AnyOptimizer | None = None
    batch_size: int = 128
    seed: int = 0
    steps: int = 0
    """Number of steps done, over all calls."""

    moments_of: str = ""
    """Class of the optimizer to which the layers' moments belong."""

    moment_steps: int = 0
    """Number of steps in which these moments were updated."""

    schedule: Schedule | None = None

    best: BestEpoch | None = None
    """With `patience`, the epoch whose network is returned."""

    stopped: bool = False
    """Whether `patience` or the callback ended training before the last epoch."""

    def __getstate__(self) -> dict[str, Any]:  # without the cached network
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def network(self) -> Network:
        """The trained network, without edges of weight 0."""
        if self.best is not None:
            return network_of(self.best.layers)
        return network_of(self.layers)

    def __repr__(self) -> str:
        words = [f"{len(self.history)} epochs", f"{self.network.edges} edges"]
        if self.history:
            last = self.history[-1]
            words.append(f"loss {last.loss:.4g}")
            if last.validation_accuracy is not None:
                words.append(f"validation accuracy {last.validation_accuracy:.4f}")
            elif last.accuracy is not None:
                words.append(f"accuracy {last.accuracy:.4f}")
        return f"TrainingRun({', '.join(words)})"

    def _repr_html_(self) -> str:
        rows = [["" if x is None else f"{x:.4g}" for x in record] for record in self.history]
        return Table(repr(self), tuple(EpochRecord.__annotations__), rows).html()


class BestEpoch(NamedTuple):
    """The epoch with the smallest validation loss so far."""

    epoch: int
    validation_loss: float
    layers: tuple[LayerState, ...]


def network_of(layers: Iterable[LayerState]) -> Network:
    """Return the network of some layers."""
    return Network([layer.layer() for layer in layers])
