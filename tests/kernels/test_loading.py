"""Libraries of compiled kernels: which one is loaded, and what Python knows of it."""

import re
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from shell import python

from gbdnn.kernels.compiled import build, loading
from gbdnn.kernels.compiled.graphblas import record_for, with_graphblas
from gbdnn.kernels.compiled.record import FUNCTIONS, MEMBERS

ROOT = Path(__file__).parents[2]
HEADERS = "".join(each.read_text(encoding="utf-8") for each in sorted(build.HERE.glob("*.h")))
COPIED = """
import sys
import numpy as np
import gbdnn
from gbdnn.challenge.machine import compiled_kernels
from gbdnn.kernels.compiled import loading

assert loading.__file__.startswith(sys.argv[1])
W, X = np.array([[0.5, 0.0], [1.0, -1.0]]), np.array([[2.0, 0.5], [0.0, 3.0]])
expected = np.maximum(X @ W - 0.25, 0)
records = []
Y = gbdnn.infer([W], X, bias=-0.25, callback=records.append)
np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
np.testing.assert_array_equal(gbdnn.compile([W], bias=-0.25)(X), expected)
assert (loading.library("float64") is None) == ("fused" not in {x.kernel for x in records})
print(compiled_kernels())
"""


def test_a_library_of_other_sources_is_not_loaded(tmp_path):
    """The answers are those of GraphBLAS then, and `show_versions` says so."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gbdnn", tmp_path / "gbdnn", ignore=ignored)
    code = f"import sys; sys.path.insert(0, sys.argv[1]); {COPIED.strip()}"
    done = python(code, tmp_path)
    assert done.stdout.split(", ")[0] in {each.name for each in loading.FOLDER.iterdir()}, (
        done.stderr
    )
    source = tmp_path / "gbdnn" / "kernels" / "compiled" / "rows.c"
    source.write_text(source.read_text().replace("Copies", "copies", 1))
    done = python(code, tmp_path)
    assert done.stdout == "none for this processor\n", done.stderr


def test_what_decides_about_the_code_is_in_the_name(monkeypatch):
    level = build.PLATFORMS["manylinux_2_28_x86_64"]["AVX2"]
    names = {
        build.file_name(each, dtype)
        for each in (level, level._replace(pair_lines=4), level._replace(target="x86_64-macos"))
        for dtype in build.DTYPES
    }
    monkeypatch.setattr(build, "OPTIONS", (*build.OPTIONS, "-g"))
    assert len({*names, build.file_name(level, "float32")}) == 7


def test_only_missing_libraries_are_compiled(tmp_path, monkeypatch):
    levels = build.PLATFORMS["manylinux_2_28_aarch64"].values()
    commands = []

    def compiled(command, **_):
        commands.append(command)
        Path(command[-1]).touch()
        return build.subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(build.subprocess, "run", compiled)
    made = build.build(tmp_path / "new", levels)
    assert len(made) == len(commands) == 2
    assert sorted(made) == sorted((tmp_path / "new").iterdir())
    assert build.build(tmp_path / "new", levels) == made
    assert len(commands) == 2


def test_a_fault_of_the_compiler_is_reported(tmp_path, monkeypatch):
    failing = [sys.executable, "-c", "raise SystemExit('layer.c:7: error')"]
    monkeypatch.setattr(build, "command", lambda *_: failing)
    levels = build.PLATFORMS["manylinux_2_28_x86_64"].values()
    with pytest.raises(
        RuntimeError, match=r"cannot compile the kernels for x86_64_v.:\nlayer\.c:7"
    ):
        build.build(tmp_path, levels)
    assert not [*tmp_path.iterdir()]


def test_the_compiler_has_one_version():
    build_system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    [pinned] = [each for each in build_system["requires"] if each.startswith("ziglang")]
    for name in (".ci/run", "CONTRIBUTING.md", "tests/conftest.py"):
        found = re.findall(r"ziglang==[\d.]+", (ROOT / name).read_text(encoding="utf-8"))
        assert {*found} == {pinned}, name


def test_python_reads_all_of_the_headers():
    """The number of arguments of each function, as its definition has it, and every structure."""
    assert len(FUNCTIONS) == HEADERS.count("\nEXPORT ")
    code = re.sub(r"//[^\n]*", "", "".join(each.read_text() for each in build.sources()))
    for name, count in FUNCTIONS.items():
        [given] = re.findall(rf"^[a-z]\w* {name}\(([^)]*)\)\s\{{", code, re.MULTILINE)
        given = [] if given == "void" else given.split(",")
        assert len(given) == count, name
        # ctypes passes addresses and integers of eight bytes alone.
        assert all("*" in each or each.strip().startswith("int64_t ") for each in given), name
    assert len(MEMBERS) == len(re.findall(r"\nstruct \w+ {", HEADERS))


@pytest.mark.parametrize(("dtype", "name"), [("float32", "FP32"), ("float64", "FP64")])
def test_graphblas_is_passed_to_the_library(dtype, name):
    """Every member of the record has a value, apart from a constant that is 0."""
    functions = with_graphblas(np.dtype(dtype))
    [record] = record_for(functions["use_graphblas"], name).array
    assert [name for name in MEMBERS["graphblas"].names if not record[name]] == ["CSR"]


def test_members_are_where_c_has_them(tmp_path):
    """The compiler refuses a program in which a structure's members are elsewhere."""
    pytest.importorskip("ziglang", reason="the compiler of the kernels")
    checks = [
        f'_Static_assert({text}, "{name}");'
        for name, kind in MEMBERS.items()
        for text in [
            f"sizeof(struct {name}) == {kind.itemsize}",
            *(f"offsetof(struct {name}, {k}) == {v[1]}" for k, v in kind.fields.items()),
            *(
                f"IS_DOUBLE(struct {name}, {k}) == {v[0].kind == 'f':d}"
                for k, v in kind.fields.items()
            ),
        ]
    ]
    source = tmp_path / "checks.c"
    is_double = "#define IS_DOUBLE(kind, k) _Generic(((kind *)0)->k, double: 1, default: 0)"
    source.write_text("\n".join(["#include <stddef.h>", '#include "loops.h"', is_double, *checks]))
    level = build.PLATFORMS["manylinux_2_28_x86_64"]["AVX2"]
    command = build.command(level, "float32", tmp_path / "checks.so", f"-I{build.HERE}")
    command = [*(each for each in command if not each.endswith(".c")), str(source)]
    done = build.subprocess.run(command, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    assert len(checks) > 100
