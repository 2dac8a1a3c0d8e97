"""What gbdnn raises itself: a `GbdnnError` that is the built-in exception it resembles, too.

None of them derives from an exception of python-graphblas: importing one of those would
initialise GraphBLAS, and ``import gbdnn`` leaves that to the caller (``graphblas.init``).
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class GbdnnError(Exception):
    """Base class of all errors that gbdnn raises itself."""


class ArgumentError(GbdnnError, ValueError):
    """An argument has a value that has no meaning here: a clip of 0, ``nthreads=0``."""


class ArgumentTypeError(GbdnnError, TypeError):
    """An argument is of a kind that has no meaning here: ``bias=`` beside a Network."""


class ShapeError(GbdnnError, ValueError):
    """Two shapes do not fit: a layer and the one before it, features and the first layer."""


class TooLargeError(GbdnnError, MemoryError):
    """A matrix has more rows or columns than memory has room for, whatever is stored in them."""


class NonFiniteError(GbdnnError, ArithmeticError):
    """An activation overflowed, or became NaN, on its way through a layer."""


class DivergenceError(GbdnnError, ArithmeticError):
    """Training diverged: a loss or a gradient is not finite. ``run`` has the weights before it."""

    def __init__(self, message: str, run: Any = None) -> None:
        super().__init__(message)
        self.run = run


class ForkError(GbdnnError, RuntimeError):
    """A forked process cannot use GraphBLAS: start it with ``spawn`` or ``forkserver``."""


class WorkerError(GbdnnError, BrokenExecutor):
    """A worker of an executor died; the message tells what is done, and how to go on."""


class RankError(GbdnnError, RuntimeError):
    """Another rank of a pipeline failed, with an error that is not gbdnn's; the message has it."""


class FormatError(GbdnnError, ValueError):
    """A file does not hold what its format promises; the message names file and line."""


class MissingFileError(GbdnnError, FileNotFoundError):
    """A file is not there; the message tells the layout that was expected."""


class OutputError(GbdnnError, OSError):
    """A file cannot be written; the one that was there before still is."""


class MissingPackageError(GbdnnError, ImportError):
    """An optional package is not installed; the message has the pip line."""


@contextmanager
def naming(where: object) -> Iterator[None]:
    """Put a file, a layer or the like before the message of a GbdnnError in the block."""
    try:
        yield
    except GbdnnError as err:
        raise type(err)(f"{where}: {err}") from err


def require_kind(x: object, kind: type, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is of a class; `what` begins the message."""
    if not isinstance(x, kind):
        raise ArgumentTypeError(f"{what}, not {type(x).__qualname__}")
