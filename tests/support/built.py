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
    """Return a library with tiles of this shape; one that is not installed is compiled.

    A processor with AVX-512 runs that for AVX2, too.
    """
    levels = build.PLATFORMS[build.this_platform()]
    level, names = levels[machine().level], list(levels)
    for each in names[names.index(machine().level) :]:
        path = loading.FOLDER / build.file_name(levels[each], dtype)
        if levels[each].pair_lines == pair_lines and path.exists():
            return path
    pytest.importorskip("ziglang", reason="the compiler of the kernels")
    folder = Path(tempfile.mkdtemp())
    return build.build(folder, [level._replace(pair_lines=pair_lines)], [dtype])[0]


def kernels(dtype, pair_lines):
    """Return the functions with tiles of this shape."""
    return loading.Functions(path_of(dtype, pair_lines), dtype)
