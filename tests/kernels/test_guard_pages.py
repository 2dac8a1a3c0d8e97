"""Compiled functions stay inside the arrays that they are given, and the rules of C."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from built import SHAPES, path_of

from gbdnn.kernels.compiled import build, loading
from gbdnn.runtime.machine import machine

ROOT, TEXT = Path(__file__).parents[2], {"capture_output": True, "text": True}

linux = pytest.mark.skipif(sys.platform != "linux", reason="memory is mapped as on Linux")
place = pytest.mark.parametrize("place", ["end", "start"])
pair_lines = pytest.mark.parametrize("pair_lines", SHAPES)
dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])
group = pytest.mark.parametrize("group", ["products", "training"])


@linux
@place
@pair_lines
@dtype
@group
@pytest.mark.pairwise
def test_no_access_outside_of_arrays(group, dtype, pair_lines, place):
    """A page that cannot be read follows, or precedes, each array."""
    compute(path_of(dtype, pair_lines), dtype, group, place, step=7)


@linux
@place
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.slow)])
def test_no_access_outside_of_memory_in_drawn_calls(step, place):
    """Blocks, the memory of GraphBLAS, and what compiled code allocates are guarded as well."""
    compute(loading.FOLDER, "-", "drawn_calls", place, step)


@linux
@place
@pair_lines
@dtype
@group
@pytest.mark.slow
def test_no_access_outside_of_arrays_in_any_case(group, dtype, pair_lines, place):
    compute(path_of(dtype, pair_lines), dtype, group, place, step=1)


@pytest.mark.parametrize("checks", ["address", "undefined"])
@pair_lines
@dtype
@pytest.mark.slow
def test_sanitizers_find_nothing(dtype, pair_lines, checks, tmp_path):
    """AddressSanitizer, whose functions are those of GCC, and UndefinedBehaviorSanitizer."""
    pytest.importorskip("ziglang", reason="the compiler of the kernels")
    environment = {"ASAN_OPTIONS": "detect_leaks=0"}
    if checks == "address":
        gcc = shutil.which("gcc") or pytest.skip("no GCC, whose library has the checks")
        found = subprocess.run([gcc, "-print-file-name=libasan.so"], **TEXT).stdout.strip()
        environment["LD_PRELOAD"] = found if Path(found).is_file() else pytest.skip("no libasan")
    level = build.PLATFORMS[build.this_platform()][machine().level]
    options = f"-fsanitize={checks}", f"-fno-sanitize-recover={checks}", "-g"
    for each in build.DTYPES:
        library = tmp_path / build.file_name(level, each)
        command = build.command(level._replace(pair_lines=pair_lines), each, library, *options)
        done = subprocess.run(command, **TEXT, check=False)
        assert done.returncode == 0, done.stderr
    for group in ("products", "training"):
        library = tmp_path / build.file_name(level, dtype)
        compute(library, dtype, group, "anywhere", step=2, **environment)
    if dtype == "float32":  # both are drawn
        compute(tmp_path, "-", "drawn_calls", "anywhere", step=2, **environment)


def compute(library, dtype, group, place, step, **environment):
    """Run cases in another process, which fails if a call does something wrong."""
    script = ROOT / "tests" / "support" / "guarded.py"
    words = ["-X", "faulthandler", script, library, dtype, group, place, step]
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, **TEXT, check=False,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, last) == (0, ["done"]), (last, done.stderr)
