"""Optimizers and learning rate schedules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, get_args

import numpy as np

from gbdnn.arrays.checks import as_array, as_flag, as_list, require_method, whole_number
from gbdnn.errors import ArgumentError
from gbdnn.kernels.compiled.record import constant
from gbdnn.kernels.steps import UpdateRule
from gbdnn.runtime.first_use import shown

__all__ = [
    "SGD",
    "Adam",
    "AnyOptimizer",
    "Constant",
    "Cosine",
    "Optimizer",
    "OptimizerName",
    "Schedule",
    "Stepwise",
    "between",
    "compiled_rule",
    "optimizer_named",
    "step_rates",
]

OptimizerName = Literal["adam", "sgd"]


class Optimizer(Protocol):
    """Interface of an optimizer in NumPy. `SGD` and `Adam` are compiled.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> class Signs:
    ...     learning_rate, moments = 0.01, 1
    ...     def update(self, values, gradient, moments, learning_rate, step):
    ...         moments[0] += 0.1 * (gradient - moments[0])
    ...         values -= np.float32(learning_rate) * np.sign(moments[0])
    >>> X = np.random.default_rng(0).random((200, 8))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> net = gbdnn.training.erdos_renyi([8, 64, 2], density=0.5)
    >>> gbdnn.train(net, X, y, optimizer=Signs()).history[-1].accuracy > 0.9
    True
    """

    @property
    def learning_rate(self) -> float:
        """Learning rate, which schedules multiply."""

    @property
    def moments(self) -> int:
        """Number of arrays kept for a layer's weights, and for its biases."""

    def update(
        self, values: np.ndarray, gradient: np.ndarray, moments: list[np.ndarray],
        learning_rate: float, step: int,
    ) -> None:  # fmt: skip
        """Change the values and moments of a layer's weights or biases in place.

        All arrays have the same shape and dtype. Moments are 0 at first; steps count from 1.
        """


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with momentum.

        v = momentum v + (dW + weight_decay W);   W = W - learning_rate v

    Parameters
    ----------
    learning_rate : float, default 0.05
    momentum : float, default 0.9
        At least 0 and less than 1.
    nesterov : bool, default False
        Use Nesterov momentum: ``W = W - learning_rate (dW + weight_decay W + momentum v)``.
    weight_decay : float, default 0.0
        Applied to weights, not to biases.
    clip_norm : float, optional
        Maximum norm of the gradient of all weights and biases; larger gradients are scaled down.

    Examples
    --------
    >>> from gbdnn.training import SGD
    >>> SGD(0.1)
    SGD(learning_rate=0.1, momentum=0.9, nesterov=False, weight_decay=0.0, clip_norm=None)
    """

    learning_rate: float = 0.05
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 0.0
    clip_norm: float | None = None
    moments: ClassVar[int] = 1

    def __post_init__(self) -> None:
        _require_common(self)
        as_flag(self.nesterov, "nesterov")
        between("momentum", self.momentum, 0, 1, below=True)

    @property
    def rule(self) -> UpdateRule:
        """Update rule for compiled code."""
        kind = constant("NESTEROV" if self.nesterov else "SGD")
        return UpdateRule(kind, (self.momentum, 0.0, 0.0, self.weight_decay, self.clip_norm or 0.0))

    def corrections(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two factors for each step, counted from 1."""
        return np.ones(len(steps)), np.ones(len(steps))


@dataclass(frozen=True)
class Adam:
    """Adam with decoupled weight decay (AdamW).

        m = beta1 m + (1 - beta1) dW;   v = beta2 v + (1 - beta2) dW^2
        W = W - learning_rate (m' / (sqrt(v') + epsilon) + weight_decay W)

    m' and v' are m and v divided by ``1 - beta^t`` in step t (bias correction).

    Parameters
    ----------
    learning_rate : float, default 0.01
    beta1, beta2 : float, default 0.9 and 0.999
        At least 0 and less than 1.
    epsilon : float, default 1e-8
    weight_decay : float, default 0.2
        Applied to weights, not to biases.
    clip_norm : float, optional
        Maximum norm of the gradient of all weights and biases; larger gradients are scaled down.

    Notes
    -----
    D. Kingma, J. Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; I. Loshchilov,
    F. Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.

    Examples
    --------
    >>> from gbdnn.training import Adam
    >>> Adam(weight_decay=0.01).learning_rate
    0.01
    """

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.2
    clip_norm: float | None = None
    moments: ClassVar[int] = 2

    def __post_init__(self) -> None:
        _require_common(self)
        between("beta1", self.beta1, 0, 1, below=True)
        between("beta2", self.beta2, 0, 1, below=True)
        between("epsilon", self.epsilon, 0, math.inf, below=True)

    @property
    def rule(self) -> UpdateRule:
        """Update rule for compiled code."""
        decay, norm = self.weight_decay, self.clip_norm or 0.0
        constants = (self.beta1, self.beta2, self.epsilon, decay, norm)
        return UpdateRule(constant("ADAM"), constants)

    def corrections(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return two factors for each step, counted from 1."""
        return 1 / (1 - self.beta1**steps), 1 / np.sqrt(1 - self.beta2**steps)


AnyOptimizer = SGD | Adam | Optimizer


class Schedule(Protocol):
    """Interface of a schedule, a function of the progress of the training.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> class Linear:
    ...     def factors(self, progress):
    ...         return 1 - progress
    >>> net = gbdnn.training.erdos_renyi([8, 16, 2], density=0.5)
    >>> run = gbdnn.train(net, np.eye(8), np.arange(8) % 2, epochs=2, schedule=Linear())
    >>> [round(record.learning_rate, 4) for record in run.history]
    [0.01, 0.005]
    """

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """Return a factor for each progress, from 0 (first step) to less than 1."""


@dataclass(frozen=True)
class Constant:
    """Constant learning rate.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import Constant
    >>> Constant().factors(np.array([0.0, 0.5]))
    array([1., 1.])
    """

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """See `Schedule`."""
        return np.ones(len(progress))


@dataclass(frozen=True)
class Cosine:
    """Cosine decay of the learning rate, from 1 to `final` times its value.

    Parameters
    ----------
    final : float, default 0.0
        Factor at the end, from 0 to 1.
    warmup : float, default 0.0
        Initial fraction of the training (less than 1) in which the factor grows linearly from 0.

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import Cosine
    >>> Cosine().factors(np.array([0.0, 0.5, 0.75])).round(3)
    array([1.   , 0.5  , 0.146])
    """

    final: float = 0.0
    warmup: float = 0.0

    def __post_init__(self) -> None:
        between("final", self.final, 0, 1)
        between("warmup", self.warmup, 0, 1, below=True)

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """See `Schedule`."""
        rest = np.maximum(progress - self.warmup, 0) / (1 - self.warmup)
        factors = self.final + (1 - self.final) * (1 + np.cos(np.pi * rest)) / 2
        if self.warmup:
            factors = np.where(progress < self.warmup, progress / self.warmup, factors)
        return factors


@dataclass(frozen=True)
class Stepwise:
    """Multiply the learning rate by `factor` at given points of the training.

    Parameters
    ----------
    at : tuple of float, default (1/3, 2/3, 5/6)
        Fractions of the training, ascending, from 0 to 1.
    factor : float, default 0.1

    Examples
    --------
    >>> import numpy as np
    >>> from gbdnn.training import Stepwise
    >>> Stepwise(at=(0.5,)).factors(np.array([0.4, 0.6]))
    array([1. , 0.1])
    """

    at: tuple[float, ...] = (1 / 3, 2 / 3, 5 / 6)
    factor: float = 0.1

    def __post_init__(self) -> None:
        between("factor", self.factor, 0, 1, above=True)
        parts = as_list(self.at, "at must be a list of fractions of the training")
        at = tuple(between("at", part, 0, 1) for part in parts)
        object.__setattr__(self, "at", at)  # an iterator can be read only once
        if list(self.at) != sorted(self.at):
            raise ArgumentError(f"at must be ascending fractions of the training, not {self.at}")

    def factors(self, progress: np.ndarray) -> np.ndarray:
        """See `Schedule`."""
        return self.factor ** np.searchsorted(self.at, progress, side="right")


def optimizer_named(
    name: Any, learning_rate: float | None = None, weight_decay: float | None = None
) -> AnyOptimizer:
    """Return the optimizer with this name; an optimizer object is returned unchanged."""
    both = {"learning_rate": learning_rate, "weight_decay": weight_decay}
    given: Any = {what: value for what, value in both.items() if value is not None}
    if not isinstance(name, str):
        if given:
            raise ArgumentError(
                f"{next(iter(given))}= cannot be combined with an optimizer object; set it in"
                f" {type(name).__name__}(...)"
            )
        _require_optimizer(name)
        return name
    if name not in get_args(OptimizerName):
        raise ArgumentError(f'optimizer must be "adam" or "sgd", not {shown(name)}')
    return SGD(**given) if name == "sgd" else Adam(**given)


def between(
    name: str, value: Any, least: float, most: float, *, below: bool = False, above: bool = False
) -> float:
    """Return a number if it is in range; otherwise raise an error that names the range."""
    number = as_array(value, name)
    ends = [end for end, is_out in ((least, above), (most, below)) if is_out]
    if number.ndim or number.dtype == bool or not least <= number <= most or number in ends:
        left, right = "more than" if above else "at least", "less than" if below else "at most"
        end = "" if math.isinf(most) else f" and {right} {most:g}"
        raise ArgumentError(f"{name} must be {left} {least:g}{end}, not {shown(value)}")
    return float(number)


def _require_optimizer(x: Any) -> None:
    """Raise ArgumentTypeError unless `x` is an optimizer."""
    if compiled_rule(x) is None:
        require_method(
            x,
            "update",
            'optimizer must be "adam", "sgd", Adam, SGD or an object with learning_rate, moments'
            " and a method update (subclasses of Adam and SGD also need it)",
        )
        whole_number(getattr(x, "moments", None), "moments", least=0)
        _require_rate(getattr(x, "learning_rate", None))


def compiled_rule(optimizer: Any) -> UpdateRule | None:
    """Return the rule of an optimizer in compiled code; None if it computes in NumPy."""
    return optimizer.rule if type(optimizer) in (SGD, Adam) else None


def _require_common(optimizer: SGD | Adam) -> None:
    _require_rate(optimizer.learning_rate)
    between("weight_decay", optimizer.weight_decay, 0, math.inf, below=True)
    if optimizer.clip_norm is not None:
        between("clip_norm", optimizer.clip_norm, 0, math.inf, above=True, below=True)


def _require_rate(rate: Any) -> None:
    between("learning_rate", rate, 0, math.inf, below=True, above=True)


def step_rates(optimizer: Any, factors: np.ndarray, first: int) -> np.ndarray:
    """Return learning rates and bias corrections of steps `first`, ..., shape (steps, 3).

    An optimizer in NumPy gets the numbers of the steps in place of corrections. `factors` are the
    schedule's, one per step.
    """
    steps = np.arange(first + 1, first + 1 + len(factors), dtype=np.float64)
    is_compiled = compiled_rule(optimizer) is not None
    others = optimizer.corrections(steps) if is_compiled else (steps, steps)
    return np.stack([optimizer.learning_rate * factors, *others], axis=1)
