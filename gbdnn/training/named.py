"""Optimisers and rewiring by their names, as the shell and estimators take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from gbdnn import training
from gbdnn.arrays.arguments import require_method
from gbdnn.arrays.first_use import shown
from gbdnn.errors import ArgumentError
from gbdnn.training.adjustments import require_adjustment
from gbdnn.training.optimisers import SGD, Adam

if TYPE_CHECKING:
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.optimisers import Optimiser

__all__ = ["OptimiserName", "RewiringName", "adjustments_named", "optimiser_named"]

OptimiserName = Literal["adam", "sgd"]
RewiringName = Literal["set", "rigl"]

_RULES = {"set": "SET", "rigl": "RigL"}


def optimiser_named(name: Any, learning_rate: float | None = None) -> Optimiser:
    """Return an optimiser.

    Parameters
    ----------
    name : {"adam", "sgd"} or optimiser
        An optimiser is returned as it is.
    learning_rate : float, optional
        Default: the optimiser's own.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        No optimiser has this name, or it is none; a learning rate beside an optimiser, which
        has one.
    """
    if not isinstance(name, str):
        if learning_rate is not None:
            raise ArgumentError(f"learning_rate beside {shown(name)}, which has one")
        require_method(name, "corrections", f"optimiser is {_among(OptimiserName)}, SGD or Adam")
        return name
    if name not in get_args(OptimiserName):
        raise ArgumentError(f"optimiser: {_among(OptimiserName)}, not {shown(name)}")
    kind = SGD if name == "sgd" else Adam
    return kind() if learning_rate is None else kind(learning_rate)


def adjustments_named(rewire: Any) -> tuple[Adjustment, ...]:
    """Return what happens between steps.

    Parameters
    ----------
    rewire : None, {"set", "rigl"}, adjustment or sequence of them
        Adjustments are returned as they are.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        No rule of rewiring has this name, or it is no adjustment.
    """
    if rewire is None:
        return ()
    if isinstance(rewire, str):
        if rewire not in _RULES:
            raise ArgumentError(f"rewire: {_among(RewiringName)}, not {shown(rewire)}")
        return (getattr(training, _RULES[rewire])(),)
    found = tuple(rewire) if isinstance(rewire, list | tuple) else (rewire,)
    for each in found:
        require_adjustment(each, f"rewire is {_among(RewiringName)}, or")
    return found


def _among(names: Any) -> str:
    return " or ".join(f'"{each}"' for each in get_args(names))
