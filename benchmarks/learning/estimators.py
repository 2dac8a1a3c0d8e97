"""Compare the estimators with scikit-learn's dense networks, with default options.

    python benchmarks/learning/estimators.py --seeds 3

The table shows the mean score of five-fold cross-validation and the time of all folds. A seed
determines both the folds and the networks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import report


def main(seeds: Annotated[int, typer.Option(min=1, help="Number of repetitions.")] = 3) -> None:
    """Cross-validate on each table, and print accuracy or R2."""
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.datasets import load_diabetes, load_digits, make_friedman1
    from sklearn.model_selection import KFold, cross_val_score
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.preprocessing import StandardScaler

    from gbdnn.training import SparseClassifier, SparseRegressor

    def dense(seed):
        network = MLPRegressor(random_state=seed, max_iter=1000)
        return TransformedTargetRegressor(network, transformer=StandardScaler())

    def sparse(seed):
        return SparseRegressor(random_state=seed, n_jobs=1)

    X, y = load_digits(return_X_y=True)
    regressors = (sparse, dense)
    tables = {
        "digits": (
            (X / 16, y),
            (
                lambda seed: SparseClassifier(random_state=seed, n_jobs=1),
                lambda seed: MLPClassifier(random_state=seed),
            ),
        ),
        "diabetes": (load_diabetes(return_X_y=True), regressors),
        "friedman1": (make_friedman1(500, noise=1, random_state=0), regressors),
    }
    rows = []
    for name, ((X, y), makers) in tables.items():
        for program, make in zip(("gbdnn", "scikit-learn"), makers, strict=True):
            begun, scores = perf_counter(), []
            for seed in range(seeds):
                folds = KFold(5, shuffle=True, random_state=seed)
                scores.append(cross_val_score(make(seed), X, y, cv=folds).mean())
            seconds = (perf_counter() - begun) / seeds
            mean = sum(scores) / seeds
            each = " ".join(f"{score:.3f}" for score in scores)
            rows.append([name, program, f"{mean:.3f}", each, f"{seconds:.1f}"])
    report.table(["table", "program", "mean", "by seed", "s"], rows)


if __name__ == "__main__":
    typer.run(main)
