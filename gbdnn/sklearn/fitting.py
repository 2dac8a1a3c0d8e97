"""Base class of the estimators: parameters, validation, and construction of the network."""

from __future__ import annotations

import functools
import inspect
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gbdnn.arrays.checks import as_dtype, as_flag, as_list, as_nthreads, whole_number
from gbdnn.arrays.matrices import as_held, as_matrix
from gbdnn.errors import ArgumentError
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import COMPLETION, complete, gb
from gbdnn.runtime.threads import available
from gbdnn.training import defaults
from gbdnn.training.data import answers
from gbdnn.training.optimizers import Constant, Cosine, between, optimizer_named
from gbdnn.training.rewiring import adjustments_named
from gbdnn.training.train import train

if TYPE_CHECKING:
    from collections.abc import Callable

    from gbdnn.training.losses import Loss
    from gbdnn.training.run import EpochRecord, TrainingRun

C = TypeVar("C", bound=type)
F = TypeVar("F", bound="Callable[..., Any]")

__all__ = ["SparseEstimator", "all_or_nothing", "described", "plain"]

_PARAMETERS = """
hidden_layer_sizes : sequence of int, default (1024, 1024); regressor: (128, 64)
    Neurons of the hidden layers; ``()`` for none.
density : float, optional
    Edges divided by possible edges, over the whole network; 1 is a dense network. Default: 20
    (n + m) edges for a layer of n x m, or all if that is more: about 20 edges per neuron in large
    networks, and dense small ones; regressor: 0.1, or more if a layer of few inputs needs it.
distribution : {"erk", "uniform"}, default "erk"
    Distribution of the edges over the layers; see `erdos_renyi`.
epochs : int, optional
    Number of passes of `fit` over the inputs. Default: 100, fewer for more than 2,000 inputs, and
    20 for 10,000 and more.
batch_size : int, optional
    Inputs per minibatch. Default: 128, fewer for less than 4,096 inputs.
optimizer : {"adam", "sgd"}, `SGD` or `Adam`, default "adam"
learning_rate : float, optional
    Default: that of the optimizer.
weight_decay : float, optional
    Default: that of the optimizer.
schedule : Constant, Cosine or Stepwise, optional
    Learning rate schedule. Default: cosine in `fit`, constant in `partial_fit`.
rewire : {"set", "rigl"}, adjustment or list of them, optional
    Rules that move edges during `fit`; see ``adjustments`` of `train`.
input_dropout : float, default 0.0
    Fraction of the features that are set to 0 in each minibatch.
validation_fraction : float, optional
    Fraction of the inputs that `fit` sets aside to evaluate after each epoch. The classifier
    stratifies by label.
patience : int, optional
    Stop after this number of epochs without a smaller validation loss, and keep the best epoch.
warm_start : bool, default False
    Whether `fit` continues training the fitted network for another `epochs` epochs. Then
    ``hidden_layer_sizes``, ``density``, ``distribution`` and ``dtype`` must not change.
callback : callable, optional
    As in `train`.
random_state : int, RandomState or None, default None
    Seed of edges, weights, minibatches and the validation split. With an int, equal calls give
    bitwise equal results.
n_jobs : int, optional
    Number of threads, -1 for all cores. Default: the number that GraphBLAS uses.
dtype : {"FP32", "FP64"}, default "FP32"
    Type of weights and sums.
"""


def all_or_nothing(method: F) -> F:
    """Decorate a method so that the estimator is unchanged if it raises."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *args, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return call  # type: ignore[return-value]


def described(kind: C) -> C:
    """Insert the shared parameters of the estimators into a docstring."""
    kind.__doc__ = inspect.cleandoc(kind.__doc__ or "").replace("{parameters}", _PARAMETERS.strip())
    return kind


@dataclass(eq=False, repr=False)
class SparseEstimator(BaseEstimator):
    """Base class of the classifier and the regressor; the fields are scikit-learn's parameters."""

    hidden_layer_sizes: Any = (1024, 1024)
    _least: ClassVar[float] = 0.0  # density unless it is given

    density: float | None = None
    _: KW_ONLY
    distribution: str = "erk"
    epochs: int | None = None
    batch_size: int | None = None
    optimizer: Any = "adam"
    learning_rate: float | None = None
    weight_decay: float | None = None
    schedule: Any = None
    rewire: Any = None
    input_dropout: float = 0.0
    validation_fraction: float | None = None
    patience: int | None = None
    warm_start: bool = False
    callback: Any = None
    random_state: Any = None
    n_jobs: int | None = None
    dtype: str = "FP32"
    run_: TrainingRun = field(init=False)

    @property
    def history_(self) -> tuple[EpochRecord, ...]:
        """An `EpochRecord` per epoch."""
        return self.run_.history

    @property
    def loss_curve_(self) -> list[float]:
        """The mean training loss of each epoch."""
        return [record.loss for record in self.run_.history]

    @property
    def network_(self) -> Network:
        """The trained network; its first layer includes the scaling of X."""
        return self._network()

    def _network(self) -> Network:
        first, *others = self.run_.network
        rows, columns, values = first.W.to_coo()
        # In FP64. The bias belongs to the rounded weights, so that means cancel.
        with np.errstate(under="ignore"):
            values = (values / self.scaler_.scale_[rows]).astype(first.dtype)
        bias = np.broadcast_to(first.bias, first.ncols).astype(np.float64)
        if self.scaler_.with_mean:
            shift = self.scaler_.mean_[rows] * values
            bias -= np.bincount(columns.astype(np.int64), shift, first.ncols)
        W = gb.Matrix.from_coo(rows, columns, values, nrows=first.nrows, ncols=first.ncols)
        return Network([Layer(W, bias, activation=first.activation, dtype=first.dtype), *others])

    @property
    def n_iter_(self) -> int:
        """Number of epochs."""
        return len(self.run_.history)

    @property
    def _goes_on(self) -> bool:
        """Whether `fit` continues from the fitted network."""
        return as_flag(self.warm_start, "warm_start") and hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _checked(self, X: Any, y: Any = None, *, reset: bool = False, **options: Any) -> Any:
        """Return features, and targets if any, validated by scikit-learn."""
        if type(X).__module__.startswith("graphblas."):
            X = gb.io.to_scipy_sparse(as_matrix(as_held(X, "X"), what="X"), "csr")
        either = (np.float64, np.float32)
        given = {"X": X} if y is None and not reset else {"X": X, "y": plain(y)}
        # One order of memory, since that of sums depends on it.
        validated = validate_data(
            self, **given, reset=reset, accept_sparse="csr", dtype=either, order="C", **options
        )
        held, *others = validated if isinstance(validated, tuple) else (validated,)
        if hasattr(held, "sum_duplicates") and not held.has_canonical_format:
            held = held.copy()  # the caller's; scikit-learn would count duplicate entries
            held.sum_duplicates()
        return (held, *others) if others else held

    def _standardised(self, X: Any, weights: np.ndarray, *, first: bool) -> Any:
        """Return features with mean 0 and variance 1; the first ones define the scale."""
        if first:
            scaler = StandardScaler(with_mean=not issparse(X)).set_output(transform="default")
            with np.errstate(under="ignore"):
                self.scaler_ = scaler.fit(X, sample_weight=weights)
        return self._scaled(X)

    def _scaled(self, X: Any) -> Any:
        """Return features as input of the network."""
        if hasattr(X, "toarray") and self.scaler_.with_mean:
            X = X.toarray()
        with np.errstate(under="ignore"):
            return self.scaler_.transform(X).astype(as_dtype(self.dtype), copy=False)

    def _begun(self, inputs: int, outputs: int, seed: int) -> Network:
        self._structure = self._structural()
        distribution: Any = self.distribution
        return defaults.network(
            [inputs, *self._structure["hidden_layer_sizes"], outputs], self.density,
            distribution=distribution, seed=seed, dtype=self.dtype, least=self._least,
        )  # fmt: skip

    def _structural(self) -> dict[str, Any]:
        """Return the parameters that only a new network follows."""
        name = "hidden_layer_sizes"
        numbers = as_list(self.hidden_layer_sizes, f"{name} must be a list of integers")
        return {
            name: [whole_number(n, name, least=1) for n in numbers],
            "density": self.density,
            "distribution": self.distribution,
            "dtype": as_dtype(self.dtype).name,
        }

    def _require_same(self) -> None:
        """Raise ArgumentError if a parameter has changed that the fitted network has not."""
        for name, value in self._structural().items():
            if value != self._structure[name]:
                raise ArgumentError(
                    f"{name} has changed from {self._structure[name]} to {value}, but training"
                    " continues with the fitted network; call fit with warm_start=False"
                )

    def _fit(
        self, X: Any, y: np.ndarray, weights: np.ndarray, outputs: int, loss: Loss,
        strata: Any = None,
    ) -> None:  # fmt: skip
        seed = _seed(self.random_state)
        validation = None
        if self.validation_fraction is None and self.patience is not None:
            raise ArgumentError("patience= requires validation data; pass validation_fraction=0.2")
        if self.validation_fraction is not None:
            between("validation_fraction", self.validation_fraction, 0, 1, above=True, below=True)
            parts = train_test_split(
                X, y, weights,
                test_size=self.validation_fraction, stratify=strata, random_state=seed,
            )  # fmt: skip
            (X, y, weights), validation = parts[::2], tuple(parts[1::2])
        if self._goes_on:
            self._require_same()
        epochs = defaults.epochs(X.shape[0]) if self.epochs is None else self.epochs
        self.run_ = train(
            self.run_ if self._goes_on else self._begun(X.shape[1], outputs, seed), X, y,
            sample_weight=weights, loss=loss, epochs=epochs,
            schedule=Cosine() if self.schedule is None else self.schedule, seed=seed,
            validation=validation, patience=self.patience, **self._options(X.shape[0]),
        )  # fmt: skip

    def _partial_fit(
        self, X: Any, y: np.ndarray, weights: np.ndarray, outputs: int, loss: Loss
    ) -> None:
        for name in ("rewire", "patience", "validation_fraction"):
            if getattr(self, name) is not None:
                raise ArgumentError(f"partial_fit does not support {name}=, but fit does")
        run = getattr(self, "run_", None)
        if run is not None:
            self._require_same()
        seed = _seed(self.random_state) if run is None else None
        before = self._begun(X.shape[1], outputs, seed or 0) if run is None else run
        self.run_ = train(
            before, X, y, sample_weight=weights, loss=loss, epochs=1,
            schedule=Constant() if self.schedule is None else self.schedule, seed=seed,
            **self._options(X.shape[0]),
        )  # fmt: skip

    def _options(self, inputs: int) -> dict[str, Any]:
        return {
            "optimizer": optimizer_named(self.optimizer, self.learning_rate, self.weight_decay),
            "adjustments": adjustments_named(self.rewire),
            "input_dropout": self.input_dropout,
            "batch_size": defaults.batch(inputs) if self.batch_size is None else self.batch_size,
            "nthreads": as_nthreads(self.n_jobs, "n_jobs"),
            "callback": self.callback,
        }

    def _answers(self, X: Any) -> np.ndarray:
        """Return the outputs of the network, float64."""
        check_is_fitted(self, "run_")
        X = self._checked(X)
        threads = as_nthreads(self.n_jobs, "n_jobs") or available()
        if hasattr(X, "toarray") and self.scaler_.with_mean:  # the bias of the network centres
            net = self._network()
        else:
            net, X = self.run_.network, self._scaled(X)
        return answers(net, X, threads).astype(np.float64)


def plain(y: Any) -> Any:
    """Return targets of types that scikit-learn does not accept as an array."""
    complete(y)
    if type(y).__module__.startswith("graphblas."):
        return y.to_dense(fill_value=0)
    if getattr(getattr(y, "dtype", None), "kind", "") == "T":  # NumPy's StringDType
        return np.asarray(y, object)
    return y.toarray() if hasattr(y, "toarray") else y


def _seed(random_state: Any) -> int:
    try:
        with COMPLETION:  # an error shows it
            random = check_random_state(random_state)
    except ValueError as err:
        raise ArgumentError(f"random_state: {err}") from err
    return int(random.randint(np.iinfo(np.int32).max))
