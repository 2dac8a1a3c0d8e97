"""Libraries of compiled kernels: which one is loaded, and what Python knows of it."""

import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from calls import raises
from shell import python

from gbdnn.kernels.compiled import build, loading
from gbdnn.kernels.compiled.graphblas import record_for, with_graphblas

ROOT = Path(__file__).parents[2]
HEADERS = "".join(each.read_text(encoding="utf-8") for each in sorted(build.HERE.glob("*.h")))
EXPORTED = re.findall(r"^EXPORT [\w ]+?\W(\w+)\(", HEADERS, re.MULTILINE)
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
    """Nor one of other headers. The answers are those of GraphBLAS, and `show_versions` says so."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gbdnn", tmp_path / "gbdnn", ignore=ignored)
    code = f"import sys; sys.path.insert(0, sys.argv[1]); {COPIED.strip()}"
    done = python(code, tmp_path)
    names = {each.name for each in loading.FOLDER.iterdir()}
    assert done.stdout.split(", ")[0] in names, done.stderr
    folder = tmp_path / "gbdnn" / "kernels" / "compiled"
    for file in (folder / "libraries").glob("*.pickle"):  # declarations are made without a build
        file.unlink()
    done = python(code, tmp_path)
    assert ".so" in done.stdout, done.stderr
    for name, old, new in (
        ("shared.h", "int64_t tidy;", "int64_t more, tidy;"), ("rows.c", "Copies", "copies"),
    ):  # fmt: skip
        before = (folder / name).read_text()
        (folder / name).write_text(before.replace(old, new, 1))
        done = python(code, tmp_path)
        assert done.stdout == "none for this processor\n", done.stderr
        (folder / name).write_text(before)


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
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", compiled)
    made = build.build(tmp_path / "new", levels)
    assert len(commands) == 2
    assert len(made) == 4  # with the declarations
    assert sorted(made) == sorted((tmp_path / "new").iterdir())
    assert build.build(tmp_path / "new", levels) == made
    assert len(commands) == 2


def test_a_fault_of_the_compiler_is_reported(tmp_path, monkeypatch):
    failing = [sys.executable, "-c", "raise SystemExit('layer.c:7: error')"]
    monkeypatch.setattr(build, "command", lambda *_: failing)
    levels = build.PLATFORMS["manylinux_2_28_x86_64"].values()
    message = r"cannot compile the kernels for x86_64_v.:\nlayer\.c:7"
    raises(RuntimeError, message, build.build, tmp_path, levels)
    assert not [*tmp_path.iterdir()]


def test_libraries_for_musl_need_only_its_c_library(tmp_path, monkeypatch):
    pytest.importorskip("ziglang")
    tag = f"musllinux_1_2_{platform.machine()}"
    with monkeypatch.context() as patched:
        patched.setattr(platform, "system", lambda: "Linux")
        patched.setattr(platform, "libc_ver", lambda: ("", ""))
        assert build.this_platform() == tag
    [level, *_] = build.PLATFORMS["musllinux_1_2_x86_64"].values()
    made, *_ = build.build(tmp_path, [level], ["float32"])
    content = made.read_bytes()
    assert b"\0libc.so\0" in content
    assert b"GLIBC_" not in content
    assert b"libc.so.6" not in content


def test_the_platform_of_windows(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    monkeypatch.setattr(platform, "machine", lambda: "AMD64")
    levels = build.PLATFORMS[build.this_platform()]
    assert [*levels] == [*build.PLATFORMS["manylinux_2_28_x86_64"]]
    assert {build.file_name(each, "float32")[-4:] for each in levels.values()} == {".dll"}


@pytest.mark.slow
def test_libraries_for_windows_need_only_its_c_library(tmp_path):
    pytest.importorskip("ziglang")
    [level, *_] = build.PLATFORMS["win_amd64"].values()
    made = build.build(tmp_path, [level], ["float32"])
    assert sorted(made) == sorted(tmp_path.iterdir())
    content = made[0].read_bytes()
    assert all(b"\0%s\0" % name.encode() in content for name in EXPORTED)
    needed = set(re.findall(rb"([\w-]+)\.dll\0", content)) - {made[0].stem.encode()}
    assert all(re.match(rb"(?i)kernel|api-ms-win-crt-", name) for name in needed), needed


WITHOUT_NAMES = """
import ctypes, mmap, os, signal, sys
import graphblas, numpy as np, rich.progress, safetensors.numpy, typer

names = "fork register_at_fork sysconf getloadavg sched_getaffinity sched_setaffinity fchmod"
for name in names.split():
    delattr(os, name)
del os.RTLD_NOLOAD, mmap.MAP_PRIVATE, mmap.MAP_ANONYMOUS, signal.SIGHUP, signal.SIGKILL
sys.modules["fcntl"] = None
load = ctypes.CDLL
def of_path(name, *more, **options):
    if name is None:
        raise TypeError("bad argument type")
    return load(name, *more, **options)
ctypes.CDLL = of_path

import gbdnn, gbdnn.cli, gbdnn.training
net = gbdnn.Network([gbdnn.Layer(np.eye(40), 0.5)] * 3)
X = np.arange(800.0).reshape(20, 40)
for engine in ("graphblas", "fused"):
    for nthreads in (1, 3, 8):
        Y = gbdnn.infer(net, X, engine=engine, nthreads=nthreads)
        assert (Y.to_dense(fill_value=0) == X + 1.5).all()
run = gbdnn.train(net, X / 800, X, epochs=1, loss="squared_error")
gbdnn.save(net, sys.argv[1])
gbdnn.save(net, sys.argv[1], replace=True)
assert len(gbdnn.load(sys.argv[1])) == 3
gbdnn.scaling(lambda n: gbdnn.infer(net, X, nthreads=n), [1], rounds=1)
print("done")
"""


def test_what_windows_lacks_is_not_needed(tmp_path):
    done = python(WITHOUT_NAMES, tmp_path / "net")
    assert done.stdout == "done\n", done.stderr


def test_python_knows_each_function():
    """A function that Python calls is declared in a header, and exported by the library."""
    assert len(EXPORTED) == HEADERS.count("\nEXPORT ") > 20
    for dtype in map(np.dtype, build.DTYPES):
        assert all(getattr(loading.of_any_processor(dtype), name) for name in EXPORTED)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_graphblas_is_passed_to_the_library(dtype):
    """Every member of the record has a value, apart from a constant that is 0."""
    found = record_for(with_graphblas(np.dtype(dtype)), np.dtype(dtype)).first
    assert [name for name in dir(found) if not getattr(found, name)] == ["CSR"]
