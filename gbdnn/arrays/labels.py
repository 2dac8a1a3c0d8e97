"""Labels of pandas and xarray objects, by which two arguments of a call are aligned.

Only names are labels: the numbers from 0 to n - 1, in any order, are what is left of positions
after rows were shuffled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbdnn.errors import ArgumentError, naming

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["aligned", "aligned_weights", "labels_of", "places"]


def labels_of(x: Any, axis: int) -> Sequence[Any] | None:
    """Return the labels along an axis: a range if they are numbers, None if there are none."""
    labels = _given(x, axis)
    return range(len(labels)) if labels is not None and _are_numbers(labels) else labels


def aligned(x: Any, labels: Sequence[Any] | None, what: str, to: str, *, axis: int = 0) -> Any:
    """Return `x` in the order of labels along an axis.

    Without labels, or if those of `x` are numbers and the others are not those of nodes, the order
    is kept. Raise ArgumentError if labels repeat, or if `x` has other labels than `to`.
    """
    given = _given(x, axis)
    if given is None or labels is None or given == list(labels):
        return x
    if _are_numbers(given):
        if isinstance(labels, range) or not _are_numbers(labels):
            return x
    elif len(given) == len(labels) and set(given) == set(labels):
        place = places(given, f"{what}: the labels of the {('rows', 'columns')[axis]}")
        order = [place[label] for label in labels]
        return getattr(x, "iloc", x)[order if axis == 0 else (slice(None), order)]
    unlabelled = " (without labels)" if isinstance(labels, range) else ""
    raise ArgumentError(
        f"{what}: the labels of the {('rows', 'columns')[axis]} differ from {to}{unlabelled};"
        " reindex it, or drop the labels with to_numpy()"
    )


def aligned_weights(weights: Sequence[Any], features: Any) -> list[Any]:
    """Return weights with rows in the order of the columns of the features or weights before."""
    matrices, labels = [], None if features is None else labels_of(features, 1)
    for k, W in enumerate(weights):
        with naming(f"layer {k}"):
            matrices.append(aligned(W, labels, "weights", "those of their inputs"))
        labels = labels_of(W, 1)
    return matrices


def places(labels: Sequence[Any], what: str) -> dict[Any, int]:
    """Return the position of each label; raise ArgumentError if one repeats."""
    place = {label: k for k, label in enumerate(labels)}
    if len(place) < len(labels):
        repeated = next(label for k, label in enumerate(labels) if place[label] != k)
        raise ArgumentError(f"{what} must be unique, but {repeated!r} repeats")
    return place


def _given(x: Any, axis: int) -> list[Any] | None:
    if hasattr(x, "iloc"):  # pandas
        indexes = list(x.axes)[axis:]
    else:  # xarray
        indexes = [x.indexes.get(dim) for dim in tuple(x.dims)[axis:]] if hasattr(x, "isel") else []
    return list(indexes[0]) if indexes and indexes[0] is not None else None


def _are_numbers(labels: Sequence[Any]) -> bool:
    return set(labels) == set(range(len(labels)))
