"""Optimizers and rewiring by their names, as the shell and estimators take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from gbdnn.arrays.checks import require_method
from gbdnn.errors import ArgumentError
from gbdnn.runtime.first_use import shown
from gbdnn.training.adjustments import require_adjustment
from gbdnn.training.optimizers import SGD, Adam
from gbdnn.training.rewiring import SET, RigL

if TYPE_CHECKING:
    from gbdnn.training.adjustments import Adjustment
    from gbdnn.training.optimizers import Optimizer

__all__ = ["OptimizerName", "RewiringName", "adjustments_named", "optimizer_named"]

OptimizerName = Literal["adam", "sgd"]
RewiringName = Literal["set", "rigl"]

_RULES = {"set": SET, "rigl": RigL}


def optimizer_named(
    name: Any, learning_rate: float | None = None, weight_decay: float | None = None
) -> Optimizer:
    """Return an optimizer.

    Parameters
    ----------
    name : {"adam", "sgd"} or optimizer
        An optimizer is returned as it is.
    learning_rate, weight_decay : float, optional
        Default: the optimizer's own.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        No optimizer has this name, or it is none; a learning rate or weight decay beside an
        optimizer, which has one.
    """
    both = {"learning_rate": learning_rate, "weight_decay": weight_decay}
    given: Any = {what: value for what, value in both.items() if value is not None}
    if not isinstance(name, str):
        if given:
            raise ArgumentError(f"{next(iter(given))} beside {shown(name)}, which has one")
        require_method(name, "corrections", f"optimizer is {_among(OptimizerName)}, SGD or Adam")
        return name
    if name not in get_args(OptimizerName):
        raise ArgumentError(f"optimizer: {_among(OptimizerName)}, not {shown(name)}")
    return SGD(**given) if name == "sgd" else Adam(**given)


def adjustments_named(rewire: Any) -> tuple[Adjustment, ...]:
    """Return what happens between steps.

    Parameters
    ----------
    rewire : None, {"set", "rigl"}, adjustment or sequence of them
        Adjustments are returned as they are.

    Raises
    ------
    ArgumentError, ArgumentTypeError
        No rule of rewiring has this name, or it is not an adjustment.
    """
    if rewire is None:
        return ()
    if isinstance(rewire, str):
        if rewire not in _RULES:
            raise ArgumentError(f"rewire: {_among(RewiringName)}, not {shown(rewire)}")
        return (_RULES[rewire](),)
    found = tuple(rewire) if isinstance(rewire, list | tuple) else (rewire,)
    for each in found:
        require_adjustment(each, f"rewire is {_among(RewiringName)}, or")
    return found


def _among(names: Any) -> str:
    return " or ".join(f'"{each}"' for each in get_args(names))
