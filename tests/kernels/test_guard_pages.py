"""Compiled functions stay inside the arrays that they are given, and the rules of C."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from built import SHAPES

from gbdnn.kernels.compiled import build, loading
from gbdnn.runtime.machine import machine

ROOT, TEXT = Path(__file__).parents[2], {"capture_output": True, "text": True}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is mapped as on Linux")
@pytest.mark.parametrize("place", ["end", "start"])
@pytest.mark.parametrize("count", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_no_access_outside_of_memory(count, place):
    """A page that cannot be read follows, or precedes, each array, block and what C allocates."""
    compute(loading.FOLDER, place, count)


@pytest.mark.parametrize("checks", ["address", "undefined"])
@pytest.mark.parametrize("pair_lines", SHAPES)
@pytest.mark.slow
def test_sanitizers_find_nothing(pair_lines, checks, tmp_path):
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
    compute(tmp_path, "anywhere", count=50, **environment)


def compute(folder, place, count, **environment):
    """Make calls in another process, which fails if one of them does something wrong."""
    script = ROOT / "tests" / "support" / "guarded.py"
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", *map(str, (script, folder, place, count))],
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, **TEXT, check=False,
    )  # fmt: skip
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, last) == (0, ["done"]), (last, done.stderr)
