"""Compiled code on disk: written once, loaded only if it is intact and nobody else can write it."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from forked import Forked
from numba import types

from gbdnn.kernels.compiled.functions import library
from gbdnn.kernels.compiled.library import Library, cache_folder

TELL = """
import sys
import numpy as np
import gbdnn
from gbdnn import errors
from gbdnn.kernels import costs
from gbdnn.kernels.compiled.library import Library

compiled = []
plain = Library.compile

def observed(self):
    compiled.append(self._label)
    return plain(self)

Library.compile = observed

def run(engine, inputs=40):
    stats = []
    random = np.random.default_rng(0)
    W = (random.random((60, 60)) < 0.2) * random.integers(-4, 9, (60, 60)) / 8
    X = random.integers(0, 9, (inputs, 60)) / 8
    Y = gbdnn.infer([W] * 3, X, clip=2.0, dtype="FP32", engine=engine, callback=stats.append)
    expected = X
    for _ in range(3):
        expected = np.clip(expected @ W, 0, 2)
    np.testing.assert_array_equal(Y.to_dense(fill_value=0), expected)
    return "+".join(sorted({s.kernel for s in stats})), len(compiled)
"""


def start(code, cache, *, before=""):
    """Start a process with its own cache folder, or without one.

    It has to be a new interpreter where something is changed before gbdnn is imported.
    """
    env = os.environ | {"GBDNN_CACHE_DIR": str(cache)}
    if not before:
        return Forked(TELL + code, env)
    return subprocess.Popen(
        [sys.executable, "-c", before + TELL + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )


def told(process, *warned):
    """What a process has printed; each of its warnings has one of these words, in their order."""
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    lines = [line for line in error.splitlines() if "Warning: " in line]
    assert len(lines) == len(warned), error
    assert all(word in line for word, line in zip(warned, lines, strict=True)), error
    assert bool(error) == bool(warned), error
    return out.splitlines()


def python(code, cache, *warned, before=""):
    return told(start(code, cache, before=before), *warned)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with the code for FP32, from this user's own folder if it is there."""
    folder = tmp_path_factory.mktemp("cache")
    code = library("float32")
    code.functions()
    if code.is_at_hand and code.file is not None and code.file.is_file():
        (folder / code.file.name).write_bytes(code.file.read_bytes())
    else:
        assert python("print(*run('fused'))", folder) == ["fused 1"]
    return folder


def only(folder):
    (file,) = folder.iterdir()
    assert file.match("kernels-blocks-float32-*.o")
    return file


REPLACED = """
from pathlib import Path
data = Path({file!r}).read_bytes()
Library.compile = lambda self: compiled.append(1) or data[32:]
"""


def replaced_compiler(file):
    """Code that makes compiling quick."""
    return REPLACED.format(file=str(file))


@pytest.mark.parametrize("compiler", ["replaced", pytest.param("real", marks=pytest.mark.slow)])
def test_two_processes_at_once_leave_one_good_file(compiler, filled, tmp_path):
    cache = tmp_path / "not" / "yet" / "there"
    code = "print(*run('fused'))"
    if compiler == "replaced":
        code = replaced_compiler(only(filled)) + code
    both = [start(code, cache) for _ in range(2)]
    answers = [told(process) for process in both]
    assert ["fused 1"] in answers
    assert all(answer in (["fused 1"], ["fused 0"]) for answer in answers)
    only(cache)
    assert python("print(*run('fused'))", cache) == ["fused 0"]


PREPARED_AT_ONCE = "costs.PREPARE_EDGE = costs.PREPARE_LAYER = 0.0\n"


def test_a_later_process_needs_no_numba(filled):
    hidden = "import sys; sys.modules['numba'] = None\n"
    code = PREPARED_AT_ONCE + "print(*run('fused'), *run('auto'))"
    assert python(code, filled, before=hidden) == ["fused 0 fused 0"]


def test_code_that_cannot_be_written_is_used(filled):
    """The folder is below a file: the code of this process is as good; the compiler is replaced.

    One warning names the variable, unless it says that nothing is to be stored.
    """
    code = replaced_compiler(only(filled)) + "print(*run('fused'), *run('fused'))"
    code += "\nLibrary(None, {}, [], 'another')._write(b'code')"
    for cache, warned in (("/dev/null/x", ["GBDNN_CACHE_DIR"]), ("", [])):
        assert python(code, cache, *warned) == ["fused 1 fused 1"]


def test_where_the_folder_is(monkeypatch):
    monkeypatch.setenv("GBDNN_CACHE_DIR", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.setenv("GBDNN_CACHE_DIR", "")
    assert cache_folder() is None
    monkeypatch.delenv("GBDNN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/gbdnn")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "gbdnn"


def test_auto_compiles_when_the_work_is_larger_than_that(filled, tmp_path):
    """Calls do not add up: equal ones choose alike. Small work writes no file."""
    cache = tmp_path / "cache"
    assert python(PREPARED_AT_ONCE + "print(*run('auto'), *run('auto'))", cache) == [
        "full 0 full 0"
    ]
    assert not cache.exists()
    code = (
        replaced_compiler(only(filled))
        + PREPARED_AT_ONCE
        + "costs.COMPILE = 0.5 * 40 * 3 * 720 * costs.speeds().full  # some 720 edges a layer\n"
        + "print(*run('auto'), *run('auto'))"
    )
    assert python(code, cache) == ["fused 1 fused 1"]
    assert only(cache).read_bytes() == only(filled).read_bytes()


MISSING = {
    "broken": """
import numba
def fail(*args, **options):
    raise RuntimeError("numba does not know this LLVM")
numba.cfunc = fail
""",
    "not installed": """
import sys, importlib.metadata as metadata
found = metadata.version
def version(name):
    if name == "numba":
        raise metadata.PackageNotFoundError(name)
    return found(name)
metadata.version = version
sys.modules["numba"] = None
""",
}


@pytest.mark.parametrize("fault", MISSING)
def test_without_numba(fault, tmp_path):
    """`auto` takes what there was before, and says so once; `fused` says what is missing."""
    code = """
print(*run('auto'))
costs.COMPILE = costs.PREPARE_EDGE = costs.PREPARE_LAYER = 0.0
print(*run('auto'), *run('auto'))
print(*run('full'), *run('sparse'))
for _ in range(2):
    try:
        run('fused')
    except gbdnn.errors.MissingPackageError as error:
        print(error)
"""
    found = python(code, tmp_path, "no fused kernel", before=MISSING[fault])
    assert found[0] == "full 0"
    assert found[1].replace("1", "0") == "full 0 full 0"
    assert found[2].replace("1", "0") == "full 0 sparse 0"
    assert len(found) == 5
    assert all("engine='fused' needs a working numba: " in line for line in found[3:])
    assert not list(tmp_path.iterdir())


NO_FMA = """
import llvmlite.binding as llvm
from llvmlite.binding.targets import FeatureMap
plain = llvm.get_host_cpu_features
def without():
    return FeatureMap({**plain(), "fma": False, "fma4": False})
llvm.get_host_cpu_features = without
llvm.get_process_triple = lambda: "x86_64-unknown-linux-gnu"  # on other machines, too
"""


def test_a_processor_without_fused_multiply_adds_never_takes_the_kernel(filled, tmp_path):
    """Each would be a call of the C library; nothing is compiled for it, and nobody is warned."""
    code = replaced_compiler(only(filled)) + PREPARED_AT_ONCE + "costs.COMPILE = 0.0\n"
    code += NO_FMA + "run('sparse')\nprint(*run('auto'), *run('auto', 9))"
    assert python(code, tmp_path) == ["full 0 full 0"]
    assert not list(tmp_path.iterdir())


# Damaged and untrusted files, of a small library


def weighted(a, b):
    return 2 * a + b


def small(label="small"):
    """Return a new library of one function that a process compiles in no time."""

    def make(lines):
        return {"weighted": (weighted, types.int64(types.int64, types.int64))}

    return Library(make, {"weighted": 2}, [], label)


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A file with the machine code of that library, in a folder of its own."""
    monkeypatch.setenv("GBDNN_CACHE_DIR", str(tmp_path / "cache"))
    code = small()
    assert not code.is_at_hand
    assert code.functions()["weighted"](10, 3) == 23
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [code.file]
    return code.file


def is_compiled_again():
    """Whether a new library compiles its function; it works in either case."""
    code = small()
    assert code.functions()["weighted"](10, 3) == 23
    return code.seconds > 0


def test_an_intact_file_is_loaded(kept):
    assert small().is_at_hand
    assert not is_compiled_again()


@pytest.mark.parametrize("fault", ["truncated", "changed", "empty", "another library's"])
def test_a_damaged_file_is_replaced(fault, kept):
    good = kept.read_bytes()
    if fault == "another library's":
        other = small("other")
        other.functions()
        other.file.replace(kept)
    else:
        flipped = good[:500] + bytes([good[500] ^ 1]) + good[501:]
        kept.write_bytes({"truncated": good[:500], "changed": flipped, "empty": b""}[fault])
    assert is_compiled_again()
    assert not is_compiled_again()


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_code_that_others_can_write_is_not_loaded(what, mode, kept):
    path = kept if what == "file" else kept.parent
    path.chmod(mode)
    assert not small().is_at_hand
    with pytest.warns(RuntimeWarning, match="can be written by others; run chmod go-w") as caught:
        assert is_compiled_again()
    assert {warning.filename for warning in caught} == {__file__}
    path.chmod(0o700)
    with warnings.catch_warnings(action="error"):
        assert not is_compiled_again()
