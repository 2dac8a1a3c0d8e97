"""Sparse networks as scikit-learn's estimators: a classifier and a regressor."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import column_or_1d

from gbdnn.errors import ArgumentError
from gbdnn.model.layer import Layer
from gbdnn.model.network import Network
from gbdnn.training.fitting import SparseEstimator, described, whole
from gbdnn.training.losses import CrossEntropy, SquaredError

__all__ = ["SparseClassifier", "SparseRegressor"]


@described
class SparseClassifier(ClassifierMixin, SparseEstimator):
    """A sparse network that tells classes apart, as an estimator of scikit-learn.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    classes_ : ndarray
        Labels, of any kind, ascending; output k of the network is that of ``classes_[k]``.
    network_ : Network
        For `infer`, `compile` and `save`.
    run_ : TrainingRun
    history_ : tuple of EpochRecord
    n_iter_ : int
        Epochs.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X had names.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import cross_val_score
    >>> from gbdnn.training import SparseClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SparseClassifier((256,), density=0.2, learning_rate=0.01, random_state=0)
    >>> bool(cross_val_score(model, X / 16, y, cv=3).mean() > 0.9)
    True
    """

    classes_: np.ndarray

    @property
    def network_(self) -> Network:
        """The trained network."""
        return self.run_.network

    @whole
    def fit(self, X: Any, y: Any) -> SparseClassifier:
        """Learn from labelled inputs, from the beginning.

        Parameters
        ----------
        X : array or sparse matrix, shape (inputs, features)
        y : array_like, shape (inputs,)
            Labels.

        Returns
        -------
        SparseClassifier
            This one.
        """
        X, y = self._checked(X, y, reset=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._fit(X, labels, len(self.classes_), CrossEntropy(), strata=labels)
        return self

    @whole
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> SparseClassifier:
        """Go once through some more inputs.

        Parameters
        ----------
        X : array or sparse matrix, shape (inputs, features)
        y : array_like, shape (inputs,)
        classes : array_like, optional
            All labels that there will be; needed in the first call.

        Returns
        -------
        SparseClassifier
            This one.

        Raises
        ------
        ArgumentError
            No classes in the first call, others in a later one, a label that is not among them.
        """
        first = not hasattr(self, "run_")
        X, y = self._checked(X, y, reset=first)
        check_classification_targets(y)
        if classes is None and first:
            raise ArgumentError("classes: the first call of partial_fit needs all labels")
        if classes is not None:
            classes = unique_labels(classes)
            if not first and not np.array_equal(classes, self.classes_):
                raise ArgumentError(f"classes: {classes}, but they were {self.classes_} before")
            self.classes_ = classes
        labels = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if (wrong := self.classes_[labels] != y).any():
            raise ArgumentError(
                f"y: label {y[wrong].tolist()[0]!r} is not among classes {self.classes_}"
            )
        self._partial_fit(X, labels, len(self.classes_), CrossEntropy(every_label=False))
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each input, shape (inputs,)."""
        found: np.ndarray = self._answers(X).argmax(axis=1)
        return self.classes_[found]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return probabilities, the softmax of the answers, shape (inputs, classes)."""
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return logarithms of probabilities, shape (inputs, classes)."""
        z = self._answers(X)
        z -= z.max(axis=1, keepdims=True)
        z -= np.log(np.exp(z).sum(axis=1, keepdims=True))
        return z


@described
class SparseRegressor(RegressorMixin, SparseEstimator):
    """A sparse network that answers with numbers, as an estimator of scikit-learn.

    Trained with squared errors, to targets that are shifted and scaled to mean 0 and variance 1.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    network_ : Network
        In units of y, within rounding of its dtype; for `infer`, `compile` and `save`.
    run_ : TrainingRun
        Its network answers with ``(y - y_mean_) / y_scale_``.
    y_mean_, y_scale_ : ndarray, shape (outputs,)
    history_ : tuple of EpochRecord
    n_iter_ : int
        Epochs.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where X had names.

    Examples
    --------
    >>> from sklearn.datasets import make_regression
    >>> from gbdnn.training import SparseRegressor
    >>> X, y = make_regression(500, 10, random_state=0)
    >>> model = SparseRegressor((256,), density=0.2, learning_rate=0.01, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """

    y_mean_: np.ndarray
    y_scale_: np.ndarray

    @property
    def network_(self) -> Network:
        """The trained network, with the scale of y in its last layer."""
        *before, last = self.run_.network
        W = last.W.to_dense(fill_value=0) * self.y_scale_
        b = last.bias * self.y_scale_ + self.y_mean_
        return Network([*before, Layer(W, b, activation="identity", dtype=last.dtype)])

    @whole
    def fit(self, X: Any, y: Any) -> SparseRegressor:
        """Learn from inputs and targets, from the beginning.

        Parameters
        ----------
        X : array or sparse matrix, shape (inputs, features)
        y : array_like, shape (inputs,) or (inputs, outputs)

        Returns
        -------
        SparseRegressor
            This one.
        """
        X, y = self._targets(X, y, first=True)
        self._fit(X, y, y.shape[1], SquaredError())
        return self

    @whole
    def partial_fit(self, X: Any, y: Any) -> SparseRegressor:
        """Go once through some more inputs; the first ones say how y is scaled.

        Parameters
        ----------
        X : array or sparse matrix, shape (inputs, features)
        y : array_like, shape (inputs,) or (inputs, outputs)

        Returns
        -------
        SparseRegressor
            This one.
        """
        X, y = self._targets(X, y, first=not hasattr(self, "run_"))
        self._partial_fit(X, y, y.shape[1], SquaredError())
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return numbers in units of y, shape (inputs,) or (inputs, outputs)."""
        found = self._answers(X) * self.y_scale_ + self.y_mean_
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, X: Any, y: Any, *, first: bool) -> tuple[Any, np.ndarray]:
        """Return checked features, and targets with mean 0 and variance 1."""
        X, y = self._checked(X, y, reset=first, multi_output=True, y_numeric=True)
        y = y.astype(np.float64)
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if first:
            self._flat = y.ndim == 1
        y = y.reshape(len(y), -1)
        if first:
            self.y_mean_, scale = y.mean(axis=0), y.std(axis=0)
            self.y_scale_ = np.where(scale > 0, scale, 1.0)
        elif y.shape[1] != len(self.y_mean_):
            raise ArgumentError(f"y: {y.shape[1]} outputs, but {len(self.y_mean_)} before")
        return X, (y - self.y_mean_) / self.y_scale_
