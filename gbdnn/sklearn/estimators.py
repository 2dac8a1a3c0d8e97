"""Scikit-learn estimators of sparse networks: a classifier and a regressor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target, unique_labels
from sklearn.utils.validation import column_or_1d

from gbdnn.arrays.checks import as_word
from gbdnn.errors import ArgumentError
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.runtime.first_use import gb
from gbdnn.sklearn.fitting import SparseEstimator, all_or_nothing, described, plain
from gbdnn.training.data import as_weights
from gbdnn.training.losses import BinaryCrossEntropy, CrossEntropy, Loss, SquaredError
from gbdnn.training.optimizers import between

__all__ = ["SparseClassifier", "SparseRegressor"]


@described
@dataclass(eq=False, repr=False)
class SparseClassifier(ClassifierMixin, SparseEstimator):
    """Sparse neural network classifier with scikit-learn's interface.

    The loss is the cross-entropy; with several labels per input, the logistic loss of each label.
    Features are standardised to mean 0 and variance 1; sparse features are scaled, but not centred.

    Parameters
    ----------
    {parameters}
    class_weight : "balanced" or mapping, optional
        Weight of each label, multiplied with `sample_weight`: ``"balanced"`` gives all labels the
        same total weight; in a mapping, missing labels have weight 1. `partial_fit` does not
        support ``"balanced"``.

    Attributes
    ----------
    classes_ : ndarray
        Sorted labels; output k of the network belongs to ``classes_[k]``.
    network_ : Network
        Trained network in the units of X, for `infer`, `compile` and `save`.
    run_ : TrainingRun
        Its network maps ``scaler_.transform(X)`` to the same outputs.
    scaler_ : StandardScaler
    history_ : tuple of EpochRecord
    n_iter_ : int
        Number of epochs.
    loss_curve_ : list of float
        Mean training loss of each epoch.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X has feature names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import cross_val_score
    >>> from gbdnn.sklearn import SparseClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SparseClassifier((256,), density=0.2, learning_rate=0.01, epochs=10, random_state=0)
    >>> bool(cross_val_score(model, X / 16, y, cv=3).mean() > 0.9)
    True
    """

    class_weight: Any = field(default=None, kw_only=True)
    classes_: np.ndarray = field(init=False)
    _binary: int = field(init=False)  # 1 if y is a matrix of 0 and 1

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseClassifier:
        """Train a new network, unless `warm_start` is set.

        Parameters
        ----------
        X : ndarray, SciPy sparse or Matrix, shape (inputs, features)
        y : array_like, shape (inputs,) or (inputs, labels)
            Labels; or a matrix of 0 and 1, where an input may have several labels.
        sample_weight : array_like, shape (inputs,), optional
            As in `train`; multiplied with `class_weight`.

        Returns
        -------
        SparseClassifier
            The fitted estimator.
        """
        goes_on = self._goes_on
        X, y = self._labelled(X, y, reset=not goes_on)
        classes = np.arange(y.shape[1]) if y.ndim == 2 else np.unique(y)
        if goes_on and not (np.array_equal(classes, self.classes_) and self._binary == y.ndim - 1):
            raise ArgumentError(
                f"warm_start=True requires the same labels: y has {len(classes)}, the earlier fit"
                f" had {len(self.classes_)}, and they differ; use warm_start=False"
            )
        self.classes_, self._binary = classes, y.ndim - 1
        y, weights, loss = self._targets(y, sample_weight)
        X = self._standardised(X, weights, first=not goes_on)
        self._fit(X, y, weights, len(classes), loss, strata=None if self._binary else y)
        return self

    @all_or_nothing
    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> SparseClassifier:
        """Train for one epoch on a batch of inputs; the first batch defines the scaling of X.

        Sparse features are converted to arrays if the first batch was an array.

        Parameters
        ----------
        X : ndarray, SciPy sparse or Matrix, shape (inputs, features)
        y : array_like, shape (inputs,) or (inputs, labels)
        classes : array_like, optional
            All labels of all batches; required in the first call, unless `y` is a matrix.
        sample_weight : array_like, shape (inputs,), optional
            As in `fit`.

        Returns
        -------
        SparseClassifier
            The fitted estimator.

        Raises
        ------
        ArgumentError
            `classes` is missing in the first call, differs in a later one, or lacks a label of y;
            ``rewire``, ``patience`` or ``validation_fraction`` is set; or a parameter of the
            network has changed.
        """
        first = not hasattr(self, "run_")
        X, y = self._labelled(X, y, reset=first)
        if classes is None and first and y.ndim == 2:
            classes = np.arange(y.shape[1])
        if classes is None and first:
            raise ArgumentError("the first call of partial_fit requires classes=, all labels")
        if first:
            self._binary = y.ndim - 1
        if classes is not None:
            classes = unique_labels(plain(classes))
            if not first and not np.array_equal(classes, self.classes_):
                raise ArgumentError("classes= differs from the classes of the first call")
            self.classes_ = classes
        if isinstance(self.class_weight, str):
            raise ArgumentError(
                'partial_fit does not support class_weight="balanced"; pass a mapping'
            )
        y, weights, loss = self._targets(y, sample_weight)
        X = self._standardised(X, weights, first=first)
        self._partial_fit(X, y, weights, len(self.classes_), loss)
        return self

    def _labelled(self, X: Any, y: Any, *, reset: bool) -> tuple[Any, np.ndarray]:
        """Return validated features, and labels or a matrix of 0 and 1."""
        X, y = self._checked(X, y, reset=reset, multi_output=True)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if y.ndim == 2 and type_of_target(y) != "multilabel-indicator":
            raise ArgumentError("y has several columns, which must contain only 0 and 1")
        return X, y

    def _targets(self, y: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, Loss]:
        """Return targets and weights of the network's training, and its loss."""
        if (y.ndim == 2) != self._binary or (y.ndim == 2 and y.shape[1] != len(self.classes_)):
            raise ArgumentError(
                f"y has shape {y.shape}, but the first call had {len(self.classes_)}"
                f" {'columns' if self._binary else 'classes'}"
            )
        if self._binary:
            if self.class_weight is not None:
                raise ArgumentError(
                    "class_weight= does not support several labels per input; use sample_weight="
                )
            return y.astype(np.int64), as_weights(sample_weight, len(y)), BinaryCrossEntropy()
        labels = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (wrong := self.classes_[labels] != y).any():
            raise ArgumentError(
                f"y: label {y[wrong].tolist()[0]!r} is not among the {len(self.classes_)} classes"
            )
        return labels, self._weights(labels, sample_weight), CrossEntropy()

    def _weights(self, labels: np.ndarray, sample_weight: Any) -> np.ndarray:
        """Return the product of sample weights and class weights."""
        of_samples = as_weights(sample_weight, len(labels))
        if isinstance(self.class_weight, Mapping):
            known = self.classes_.tolist()
            unknown = [key for key in self.class_weight if key not in known]
            # As scikit-learn: a part of the inputs may lack a label.
            if unknown and not all(label in self.class_weight for label in known):
                raise ArgumentError(
                    f"class_weight: {unknown[0]!r} is not a label; labels are {known[:10]}"
                )
            given = [self.class_weight.get(label, 1) for label in known]
            weights = [between("class_weight", weight, 0, math.inf, below=True) for weight in given]
            return of_samples * np.array(weights)[labels]
        if self.class_weight is not None:
            as_word(self.class_weight, "class_weight", ["balanced"])
            totals = np.bincount(labels, of_samples)
            return of_samples / np.where(totals > 0, totals, 1)[labels]
        return of_samples

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each input, shape (inputs,).

        With several labels per input, return a matrix of 0 and 1, shape (inputs, labels).
        """
        z = self._answers(X)
        if self._binary:
            return (z > 0).astype(np.int64)
        return self.classes_[z.argmax(axis=1)]

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the network's outputs, shape (inputs, classes).

        With two classes, return the second minus the first output, shape (inputs,).
        """
        z = self._answers(X)
        return z[:, 1] - z[:, 0] if z.shape[1] == 2 and not self._binary else z

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the softmax of the outputs, shape (inputs, classes).

        With several labels per input, return the probability of each label.
        """
        logarithms = self.predict_log_proba(X)
        with np.errstate(under="ignore"):
            return np.exp(logarithms)

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`, shape (inputs, classes)."""
        z = self._answers(X)
        with np.errstate(under="ignore"):
            if self._binary:
                return -np.logaddexp(0, -z)
            z -= z.max(axis=1, keepdims=True)
            z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
        return z

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


@described
@dataclass(eq=False, repr=False)
class SparseRegressor(RegressorMixin, SparseEstimator):
    """Sparse neural network regressor with scikit-learn's interface.

    The loss is the squared error. Targets and features are standardised to mean 0 and variance 1;
    sparse features are scaled, but not centred.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    network_ : Network
        Trained network in the units of X and y, for `infer`, `compile` and `save`.
    run_ : TrainingRun
        Its network maps ``scaler_.transform(X)`` to ``(y - y_mean_) / y_scale_``.
    scaler_ : StandardScaler
    y_mean_, y_scale_ : ndarray, shape (outputs,)
    history_ : tuple of EpochRecord
    n_iter_ : int
        Number of epochs.
    loss_curve_ : list of float
        Mean training loss of each epoch.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X has feature names.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from gbdnn.sklearn import SparseRegressor
    >>> X, y = make_regression(500, 10, random_state=0)
    >>> model = SparseRegressor((256,), density=0.2, learning_rate=0.01, epochs=50, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """

    hidden_layer_sizes: Any = (128, 64)
    _least: ClassVar[float] = 0.1

    @property
    def network_(self) -> Network:
        """The trained network; its first and last layers include the scaling of X and y."""
        *before, last = self._network()
        rows, columns, values = last.W.to_coo()
        values = (values * self.y_scale_[columns]).astype(last.dtype)
        W = gb.Matrix.from_coo(rows, columns, values, nrows=last.nrows, ncols=last.ncols)
        b = last.bias * self.y_scale_ + self.y_mean_
        return Network([*before, Layer(W, b, activation="identity", dtype=last.dtype)])

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseRegressor:
        """Train a new network, unless `warm_start` is set.

        Parameters
        ----------
        X : ndarray, SciPy sparse or Matrix, shape (inputs, features)
        y : array_like, shape (inputs,) or (inputs, outputs)
        sample_weight : array_like, shape (inputs,), optional
            As in `train`; also used for the mean and variance of y.

        Returns
        -------
        SparseRegressor
            The fitted estimator.
        """
        X, y, weights = self._targets(X, y, sample_weight, first=not self._goes_on)
        self._fit(X, y, weights, y.shape[1], SquaredError())
        return self

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SparseRegressor:
        """Train for one epoch on a batch of inputs; the first batch defines the scaling of y.

        Parameters and result are those of `fit`.
        """
        X, y, weights = self._targets(X, y, sample_weight, first=not hasattr(self, "run_"))
        self._partial_fit(X, y, weights, y.shape[1], SquaredError())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions in the units of y, shape (inputs,) or (inputs, outputs)."""
        answers = self._answers(X) * self.y_scale_ + self.y_mean_
        return answers[:, 0] if self._flat else answers

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool
    ) -> tuple[Any, np.ndarray, np.ndarray]:
        """Return validated features, standardised targets, and weights."""
        X, y = self._checked(X, y, reset=first, multi_output=True, y_numeric=True)
        y = y.astype(np.float64)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if first:
            self._flat = y.ndim == 1
        y = y.reshape(len(y), -1)
        weights = as_weights(sample_weight, len(y))
        if first:
            self.y_mean_ = np.average(y, axis=0, weights=weights)
            scale = np.sqrt(np.average((y - self.y_mean_) ** 2, axis=0, weights=weights))
            self.y_scale_ = np.where(scale > 0, scale, 1.0)
        elif y.shape[1] != len(self.y_mean_):
            raise ArgumentError(
                f"y has {y.shape[1]} outputs, but the first call had {len(self.y_mean_)}"
            )
        X = self._standardised(X, weights, first=first)
        return X, (y - self.y_mean_) / self.y_scale_, weights
