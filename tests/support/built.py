"""Compiled kernels of either shape of tiles, for the processor at hand."""

import tempfile
from functools import cache
from pathlib import Path

import pytest

from gbdnn.kernels.compiled import build, loading
from gbdnn.runtime.machine import machine

SHAPES = 2, 4  # cache lines of the widest tile of two neurons: AVX2 and NEON, AVX-512


@cache
def path_of(dtype, pair_lines):
    """Return a library with tiles of this shape; the other shape than installed is compiled."""
    level = build.PLATFORMS[build.this_platform()][machine().level]
    if level.pair_lines == pair_lines and (installed := loading.library(dtype)):
        return installed
    pytest.importorskip("ziglang", reason="the compiler of the kernels")
    folder = Path(tempfile.mkdtemp())
    return build.build(folder, [level._replace(pair_lines=pair_lines)], [dtype])[0]


def kernels(dtype, pair_lines):
    """Return the functions with tiles of this shape."""
    return loading.functions_of(path_of(dtype, pair_lines))
