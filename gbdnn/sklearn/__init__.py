"""Scikit-learn estimators of sparse networks: `SparseClassifier` and `SparseRegressor`."""

from gbdnn.runtime.optional import require

require("sklearn", "sklearn", "gbdnn.sklearn needs scikit-learn 1.6")

from gbdnn.sklearn.estimators import SparseClassifier, SparseRegressor  # noqa: E402

__all__ = ["SparseClassifier", "SparseRegressor"]
__dir__ = __all__.copy  # dir() lists the public names only
