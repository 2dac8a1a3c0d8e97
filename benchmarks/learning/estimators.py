"""Compare the estimators with scikit-learn's dense networks of the same hidden layers.

    GBDNN_DATA=data python benchmarks/learning/estimators.py --mnist --json estimators.json

Both use default options, and scikit-learn's networks get standardised features. The table shows the
mean score of five-fold cross-validation, the least and largest mean of a seed, and the time of all
folds on one thread. A seed determines both the folds and the networks; seeds are 0, 1, ... MNIST is
trained once, and tested on its test images.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
import options
import report
from images_to_learn import images

PROGRAMS = ("gbdnn", "scikit-learn")
HIDDEN = {"default": None, "100": (100,), "256,256": (256, 256)}


def main(
    seeds: options.Count = 3,
    mnist: Annotated[bool, typer.Option(help="Also train on MNIST, once.")] = False,
    json_file: options.Json = None,
) -> None:
    """Cross-validate on each table, and print accuracy or R2."""
    from sklearn import datasets

    found = report.circumstances() | {"seeds": seeds, "rows": (rows := [])}
    report.say_load(found)
    made = {
        "wine": datasets.load_wine(return_X_y=True),
        "breast cancer": datasets.load_breast_cancer(return_X_y=True),
        "digits": datasets.load_digits(return_X_y=True),
        **{
            f"made, {inputs} x {features}": datasets.make_classification(
                inputs, features, n_informative=informative, n_classes=classes, random_state=0
            )
            for inputs, features, informative, classes in ((1000, 20, 10, 3), (4000, 50, 20, 4))
        },
        "diabetes": datasets.load_diabetes(return_X_y=True),
        "friedman1": datasets.make_friedman1(500, noise=1, random_state=0),
    }  # fmt: skip
    for name, (X, y) in made.items():
        labels = y.dtype.kind in "iu" and name != "diabetes"
        for hidden, program in product(("100", "256,256") if labels else ("default",), PROGRAMS):
            scores, seconds = _scores(program, HIDDEN[hidden], labels, X, y, seeds)
            rows.append(_row(name, hidden, program, scores, seconds))
    if mnist:
        rows += _mnist()
    report.table(rows)
    report.write(json_file, found)


def _row(
    name: str, hidden: str, program: str, scores: list[float], seconds: float
) -> dict[str, Any]:
    mean, least, most = (round(x, 4) for x in (sum(scores) / len(scores), min(scores), max(scores)))
    row = {
        "table": name, "hidden": hidden, "program": program, "mean": mean, "least": least,
        "most": most, "seconds": round(seconds, 2),
    }  # fmt: skip
    print(*row.values(), flush=True)
    return row


def _model(program: str, hidden: tuple[int, ...] | None, labels: bool, seed: int) -> Any:
    from sklearn.compose import TransformedTargetRegressor
    from sklearn.neural_network import MLPClassifier, MLPRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from gbdnn.sklearn import SparseClassifier, SparseRegressor

    options: dict[str, Any] = {"random_state": seed}
    if program == "gbdnn":
        options |= {"n_jobs": 1} | ({} if hidden is None else {"hidden_layer_sizes": hidden})
        return (SparseClassifier if labels else SparseRegressor)(**options)
    if labels:
        return make_pipeline(StandardScaler(), MLPClassifier(hidden, **options))
    network = make_pipeline(StandardScaler(), MLPRegressor(max_iter=1000, **options))
    return TransformedTargetRegressor(network, transformer=StandardScaler())


def _scores(
    program: str, hidden: tuple[int, ...] | None, labels: bool, X: Any, y: Any, seeds: int
) -> tuple[list[float], float]:
    """Return the mean score for each seed, and the mean seconds of a seed."""
    from sklearn.model_selection import KFold, cross_val_score

    _model(program, (), labels, 0).fit(X, y)  # loads compiled code
    begun, scores = perf_counter(), []
    for seed in range(seeds):
        folds = KFold(5, shuffle=True, random_state=seed)
        model = _model(program, hidden, labels, seed)
        scores.append(float(cross_val_score(model, X, y, cv=folds).mean()))
    return scores, (perf_counter() - begun) / seeds


def _mnist() -> list[dict[str, Any]]:
    data, rows = images(), []
    for hidden, program in product(("100", "256,256"), PROGRAMS):
        begun = perf_counter()
        model = _model(program, HIDDEN[hidden], True, 0).fit(data.X, data.y)
        seconds = perf_counter() - begun
        score = float(model.score(data.X_test, data.y_test))
        rows.append(_row(data.name, hidden, program, [score], seconds))
    return rows


if __name__ == "__main__":
    options.run(main)
