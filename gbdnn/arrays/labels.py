"""Labels of pandas and xarray objects, by which two arguments of a call are aligned.

Labels that count from 0, as those of a new data frame, name positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gbdnn.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["aligned", "labels_of"]


def labels_of(x: Any, axis: int) -> Sequence[Any] | None:
    """Return the labels along an axis: a range if they count from 0, None if there are none."""
    if hasattr(x, "iloc"):  # pandas
        found = list(x.axes)[axis:]
    else:  # xarray
        found = [x.indexes.get(dim) for dim in tuple(x.dims)[axis:]] if hasattr(x, "isel") else []
    if not found or found[0] is None:
        return None
    labels, counted = list(found[0]), range(len(found[0]))
    return counted if labels == list(counted) else labels


def aligned(x: Any, labels: Sequence[Any] | None, what: str, to: str, *, axis: int = 0) -> Any:
    """Return `x` in the order of labels along an axis.

    Without labels, or if those of `x` count from 0 and the others do not, the order is kept.
    Raise ArgumentError if `x` has other labels than `to`.
    """
    given = labels_of(x, axis)
    if given is None or labels is None or given == labels:
        return x
    place = {label: k for k, label in enumerate(given)}
    if len(given) == len(labels) and place.keys() == set(labels):
        order = [place[label] for label in labels]
        return getattr(x, "iloc", x)[order if axis == 0 else (slice(None), order)]
    if isinstance(given, range):
        return x
    unlabelled = " (without labels)" if isinstance(labels, range) else ""
    raise ArgumentError(
        f"{what}: the labels of the {('rows', 'columns')[axis]} differ from {to}{unlabelled};"
        " reindex it, or drop the labels with to_numpy()"
    )
