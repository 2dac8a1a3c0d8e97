"""The libraries for Windows under Wine: C programs compute the same bits with them as on Linux."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gbdnn.kernels.compiled import build
from gbdnn.runtime.machine import machine

STRESS = Path(__file__).parents[1] / "stress"
TAGS = {"manylinux_2_28_x86_64": ("kernels.so", []), "win_amd64": ("kernels.dll", ["wine"])}
LEVELS = [*build.PLATFORMS["win_amd64"]]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("wine"), reason="no Wine")
@pytest.mark.parametrize("dtype", build.DTYPES)
@pytest.mark.parametrize("name", LEVELS)
def test_windows_computes_the_same_bits_as_linux(name, dtype, tmp_path):
    """The compiled run and the loops of GraphBLAS calls, on one thread and on a team of four."""
    pytest.importorskip("ziglang")
    if name not in LEVELS[LEVELS.index(machine().level) :]:
        pytest.skip("this processor lacks the instructions")
    printed = {}
    for tag, (file, start) in TAGS.items():
        level = build.PLATFORMS[tag][name]
        library = tmp_path / file
        subprocess.run(build.command(level, dtype, library), check=True)
        linked = library if tag.startswith("many") else f"{library}.lib"
        for program in ("races", "loops"):
            made = tmp_path / f"{program}{library.suffix}.exe"
            real, bits = build.DTYPES[dtype]
            command = [
                *(sys.executable, "-m", "ziglang", "cc", "-std=c11", "-O1", "-ffp-contract=off"),
                *("-target", level.target, f"-I{build.HERE}", f"-DREAL={real}", f"-DBITS={bits}"),
                *(f"-DPAIR_LINES={level.pair_lines}", "-mcpu=x86_64"),
                *(str(STRESS / f"{program}.c"), str(linked), "-lpthread", "-o", str(made)),
            ]
            subprocess.run(command, check=True)
            done = subprocess.run(
                [*start, made], capture_output=True, text=True, timeout=300, cwd=tmp_path,
                env=os.environ | {"WINEDEBUG": "-all"},
            )  # fmt: skip
            assert "equal answers" in done.stdout, done.stdout + done.stderr
            printed.setdefault(program, []).append(done.stdout.split())
    assert all(windows == linux for linux, windows in printed.values())
