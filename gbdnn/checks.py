"""Checks of arguments that several folders share: whole numbers, optional packages."""

from __future__ import annotations

import importlib
import operator
from typing import Any

import numpy as np

from gbdnn.errors import ArgumentError, ArgumentTypeError, MissingPackageError

__all__ = ["MAX_INDEX", "require", "whole_number"]

MAX_INDEX = 2**60
"""The largest dimension of a GraphBLAS matrix."""


def require(package: str, extra: str, why: str) -> Any:
    """Import an optional package.

    Parameters
    ----------
    package : str
        A module: ``"polars"``, ``"scipy.sparse"``.
    extra : str
        The extra of gbdnn that brings it.
    why : str
        What needs it; begins the error's message.

    Returns
    -------
    module

    Raises
    ------
    MissingPackageError
        It is not installed; the message has the pip line.
    """
    try:
        return importlib.import_module(package)
    except ImportError as err:
        raise MissingPackageError(f'{why}: pip install "gbdnn[{extra}]"') from err


def whole_number(number: Any, name: str, least: int = 1, most: int = MAX_INDEX) -> int:
    """Return `number` as an int.

    Raises
    ------
    ArgumentTypeError
        It is no whole number: a float, a bool, a string; `name` is the argument's.
    ArgumentError
        It is less than `least` or greater than `most`.
    """
    try:
        if isinstance(number, bool | np.bool_):
            raise TypeError
        n = operator.index(number)
    except TypeError as err:
        raise ArgumentTypeError(f"{name}: {number!r} is no whole number") from err
    if not least <= n <= most:
        raise ArgumentError(f"{name}: {n} is not between {least} and {most}")
    return n
