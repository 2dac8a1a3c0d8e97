"""Versions and other information for bug reports and measurements."""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from gbdnn._version import __version__
from gbdnn.kernels.compiled.loading import library
from gbdnn.runtime.first_use import gb
from gbdnn.runtime.topology import described

_PACKAGES = (
    "python-graphblas suitesparse-graphblas numpy scipy polars safetensors xxhash"
    " scikit-learn typer rich onnx torch distributed mpi4py matplotlib"
)
_SETTINGS = ("GRB_", "KMP_", "OMP_", "OPENBLAS_")


def versions() -> dict[str, str]:
    """Return the versions of Python, gbdnn and its numerical libraries.

    Returns
    -------
    dict
        Version by name.
    """
    return {
        "python": platform.python_version(),
        "gbdnn": __version__,
        "python-graphblas": gb.__version__,
        "SuiteSparse:GraphBLAS": ".".join(map(str, gb.ss.about["library_version"])),
        "numpy": np.__version__,
    }


def show_versions() -> None:
    """Print information for bug reports: versions, machine, compiled code and settings.

    Missing packages are omitted. It also works if GraphBLAS does not start.

    Examples
    --------
    >>> import gbdnn
    >>> gbdnn.show_versions()  # doctest: +ELLIPSIS
    gbdnn ...
    """
    facts = {"gbdnn": lambda: __version__, "Python": lambda: sys.version.replace("\n", " ")}
    facts |= {name: partial(str, value) for name, value in described().items()}
    facts["SuiteSparse:GraphBLAS"] = lambda: ".".join(map(str, gb.ss.about["library_version"]))
    for name in _PACKAGES.split():
        with suppress(PackageNotFoundError):
            facts[name] = partial(str, version(name))
    facts["compiled kernels"] = compiled_kernels
    for name, value in sorted(os.environ.items()):
        if name.startswith(_SETTINGS):
            facts[name] = partial(str, value)
    for name, told in facts.items():
        try:
            answer = told()
        except Exception as err:  # report any error instead of failing
            answer = f"{type(err).__name__}: {err}"
        print(f"{name:<21} {answer}")  # noqa: T201 -- the purpose of the function


def compiled_kernels() -> str:
    """Return the file names of the compiled kernels that this processor uses."""
    paths = [library(dtype) for dtype in ("float32", "float64")]
    return ", ".join(path.name for path in paths if path) or "none for this processor"
