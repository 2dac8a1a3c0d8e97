"""Exceptions: each derives from `GbdnnError` and from the closest built-in exception.

None derives from an exception of python-graphblas: importing those initialises GraphBLAS, which
``import gbdnn`` leaves to the caller (``graphblas.init``).
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [  # GbdnnError is a name of gbdnn
    "ArgumentError",
    "ArgumentTypeError",
    "DivergenceError",
    "ForkError",
    "FormatError",
    "MissingFileError",
    "MissingPackageError",
    "NonFiniteError",
    "OutputError",
    "ReadError",
    "ShapeError",
    "TooLargeError",
    "WorkerError",
]
__dir__ = __all__.copy  # dir() lists the public names only


class GbdnnError(Exception):
    """Base class of all exceptions of gbdnn.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> try:
    ...     gbdnn.infer([np.eye(1)], np.ones((2, 2)))
    ... except gbdnn.GbdnnError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    def __reduce__(self) -> tuple[Any, ...]:
        """Include an errno that was set after construction in the pickle."""
        made = tuple(super().__reduce__())
        state: dict[str, Any] = dict(made[2]) if len(made) > 2 else {}
        if getattr(self, "errno", None) is not None:
            state["errno"] = self.errno  # type: ignore[attr-defined]
        return made[0], made[1], state


class ArgumentError(GbdnnError, ValueError):
    """An argument has an invalid value: a clip of 0, ``nthreads=0``.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> try:
    ...     gbdnn.Layer(np.eye(2), clip=0)
    ... except gbdnn.errors.ArgumentError as error:  # or ValueError
    ...     print(error)
    clip must be finite and positive, or None for no limit, not 0.0
    """


class ArgumentTypeError(GbdnnError, TypeError):
    """An argument has the wrong type or cannot be combined with another: ``bias=`` with a Network.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> net = gbdnn.Network([gbdnn.Layer(np.eye(2))])
    >>> try:
    ...     gbdnn.infer(net, np.eye(2), bias=-1)
    ... except gbdnn.errors.ArgumentTypeError as error:  # or TypeError
    ...     print(error)
    bias= cannot be combined with a Network; its layers already have one
    """


class ShapeError(GbdnnError, ValueError):
    """Two shapes do not fit: two layers, or the features and the first layer.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> try:
    ...     gbdnn.infer([np.eye(1)], np.ones((2, 2)))
    ... except gbdnn.errors.ShapeError as error:  # or ValueError
    ...     print(error)
    features are 2 x 2, but layer 0 is 1 x 1; pass features with 1 column
    """


class TooLargeError(GbdnnError, MemoryError):
    """A matrix has more rows or columns than fit into memory, even without entries.

    Examples
    --------
    >>> import graphblas as gb, numpy as np, gbdnn
    >>> gbdnn.infer([np.eye(1)], gb.Matrix(float, nrows=2**59, ncols=1), bias=1.0)
    Traceback (most recent call last):
    gbdnn.errors.TooLargeError: ...
    """


class NonFiniteError(GbdnnError, ArithmeticError):
    """An activation overflowed or became NaN; the message names the layer.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> W = np.array([[1e200]])
    >>> try:
    ...     gbdnn.infer([W, W], np.ones((1, 1)))
    ... except gbdnn.errors.NonFiniteError as error:  # or ArithmeticError
    ...     print(str(error).partition(":")[0])
    layer 1
    """


class DivergenceError(GbdnnError, ArithmeticError):
    """Training diverged: the loss or a gradient is not finite. ``run`` has the last finite weights.

    Examples
    --------
    >>> import numpy as np, gbdnn
    >>> X, y = np.eye(4), np.array([0, 1, 0, 1])
    >>> net = gbdnn.training.erdos_renyi([4, 8, 2], density=1)
    >>> options = {"loss": "squared_error", "optimizer": gbdnn.training.SGD(1e30)}
    >>> try:
    ...     gbdnn.train(net, X, np.eye(2)[y], epochs=20, **options)
    ... except gbdnn.errors.DivergenceError as error:  # or ArithmeticError
    ...     print(error.run is not None)
    True
    """

    def __init__(self, message: str, run: Any = None) -> None:
        super().__init__(message)
        self.run = run


class ForkError(GbdnnError, RuntimeError):
    """A forked process cannot use GraphBLAS; start it with ``spawn`` or ``forkserver``.

    Examples
    --------
    >>> import multiprocessing
    >>> from concurrent.futures import ProcessPoolExecutor
    >>> import numpy as np, gbdnn
    >>> context = multiprocessing.get_context("fork")
    >>> try:
    ...     with ProcessPoolExecutor(2, context) as pool:
    ...         gbdnn.infer([np.eye(1)], np.eye(1), executor=pool)
    ... except gbdnn.errors.ForkError as error:  # or RuntimeError
    ...     print("start the workers with spawn")
    start the workers with spawn
    """


class WorkerError(GbdnnError, BrokenExecutor):
    """A worker of an executor died, or another rank of a pipeline failed with a foreign exception.

    The message states which parts are complete, or quotes the exception.

    Examples
    --------
    >>> from concurrent.futures import BrokenExecutor
    >>> import gbdnn
    >>> issubclass(gbdnn.errors.WorkerError, BrokenExecutor)
    True
    """


class FormatError(GbdnnError, ValueError):
    r"""The content of a file is invalid; the message names the file and the line.

    Examples
    --------
    >>> import pathlib, tempfile, gbdnn
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "weights.tsv"
    >>> _ = file.write_text("1\t2\tmany\n")
    >>> try:
    ...     gbdnn.io.read_features(file)
    ... except gbdnn.errors.FormatError as error:  # or ValueError
    ...     print(str(error).partition("weights.tsv")[2])
    , line 1: the value 'many' is not a finite number
    """


class MissingFileError(GbdnnError, FileNotFoundError):
    """A file does not exist; the message describes the expected layout.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.load("no such folder")
    Traceback (most recent call last):
    gbdnn.errors.MissingFileError: no such folder: no such file or folder
    """


class ReadError(GbdnnError, OSError):
    """A file cannot be read because of permissions, a disk error or too many open files.

    ``errno`` is that of the operating system, if known.

    Examples
    --------
    >>> import gbdnn
    >>> issubclass(gbdnn.errors.ReadError, OSError)
    True
    """


class OutputError(GbdnnError, OSError):
    """A file cannot be written; an existing file is left unchanged.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.save(gbdnn.gallery.radixnet(1024, 1), "/dev/null/net")
    Traceback (most recent call last):
    gbdnn.errors.OutputError: /dev/null/net: ...
    """


class MissingPackageError(GbdnnError, ImportError):
    """An optional package is not installed; the message contains the pip command.

    Examples
    --------
    >>> import gbdnn
    >>> issubclass(gbdnn.errors.MissingPackageError, ImportError)
    True
    """


@contextmanager
def naming(where: object) -> Iterator[None]:
    """Prefix the message of a GbdnnError raised in the block with a file, a layer or the like."""
    try:
        yield
    except GbdnnError as err:
        prefix(err, where)
        raise


def prefix(err: GbdnnError, where: object) -> None:
    """Prefix the message of an error with a file, a layer or the like."""
    message = f"{where}: {err}"
    err.args = (message, *err.args[1:])
    if isinstance(err, ImportError):
        err.msg = message  # str(err) is msg


def require_kind(x: object, kind: type, what: str) -> None:
    """Raise ArgumentTypeError unless `x` is of a class; `what` begins the message."""
    if not isinstance(x, kind):
        raise ArgumentTypeError(f"{what}, not {type(x).__qualname__}")
