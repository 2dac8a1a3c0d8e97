"""Compiled code on disk: written once, never trusted blindly, never in the way."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gbdnn
from gbdnn.kernels.compiled.functions import library
from gbdnn.kernels.compiled.library import Library, cache_folder
from gbdnn.kernels.fused import FusedForm

TELL = """
import sys
import numpy as np
import gbdnn
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
    return "+".join(sorted({s.form for s in stats})), len(compiled)
"""


def start(code, cache, *, before=""):
    """Start a process with its own cache folder, or without one."""
    return subprocess.Popen(
        [sys.executable, "-c", before + TELL + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"GBDNN_CACHE_DIR": str(cache)},
    )


def told(process):
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    assert error == ""
    return out.splitlines()


def python(code, cache, *, before=""):
    return told(start(code, cache, before=before))


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


@pytest.fixture
def folder(filled, tmp_path):
    """A copy of that folder."""
    for file in filled.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def only(folder):
    (file,) = folder.iterdir()
    assert file.match("kernels-float32-*.o")
    return file


REPLACED = """
from pathlib import Path
code = Path({file!r}).read_bytes()[32:]
Library.compile = lambda self: compiled.append(1) or time.sleep({seconds}) or code
"""


def replaced_compiler(file, seconds=0.0):
    """Code that makes compiling quick."""
    return "import time" + REPLACED.format(file=str(file), seconds=seconds)


@pytest.mark.parametrize("compiler", ["replaced", pytest.param("real", marks=pytest.mark.slow)])
def test_two_processes_at_once_leave_one_good_file(compiler, filled, tmp_path):
    cache = tmp_path / "not" / "yet" / "there"
    code = "print(*run('fused'))"
    if compiler == "replaced":
        code = replaced_compiler(only(filled), 1.0) + code
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


def test_code_of_other_sources_is_not_taken(folder):
    """Nor of another processor: all of it is in the name."""
    only(folder).rename(folder / ("kernels-float32-" + 32 * "0" + ".o"))
    code = (
        "from gbdnn.kernels.compiled.functions import library\nprint(library('float32').is_at_hand)"
    )
    assert python(code, folder) == ["False"]


@pytest.mark.parametrize("fault", ["truncated", "changed", "empty"])
def test_a_damaged_file_is_not_run(fault, filled, folder):
    """What is no compiled code is made anew; here the compiler is replaced, to be quick."""
    file = only(folder)
    good = file.read_bytes()
    bad = {
        "truncated": good[: len(good) // 2],
        "changed": good[:5000] + bytes([good[5000] ^ 1]) + good[5001:],
        "empty": b"",
    }[fault]
    file.write_bytes(bad)
    code = replaced_compiler(only(filled)) + "print(*run('fused'))"
    assert python(code, folder) == ["fused 1"]
    assert only(folder).read_bytes() == good


@pytest.mark.slow
def test_a_damaged_file_is_compiled_anew_and_replaced(folder):
    file = only(folder)
    good = file.read_bytes()
    file.write_bytes(good[:1000])
    assert python("print(*run('fused'))", folder) == ["fused 1"]
    assert len(only(folder).read_bytes()) > len(good) // 2
    assert python("print(*run('fused'))", folder) == ["fused 0"]


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["/dev/null/x", "", "read-only"])
def test_without_a_folder_the_code_lives_in_its_process(cache, tmp_path):
    """It is compiled once, and leaves nothing behind."""
    if cache == "read-only":
        cache = tmp_path / "folder"
        cache.mkdir(mode=0o500)
        if os.access(cache, os.W_OK):
            pytest.skip("this user may write everywhere")
    assert python("print(*run('fused'), *run('fused'))", cache) == ["fused 1 fused 1"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("cache", ["/dev/null/x", ""])
def test_without_a_folder_small_work_compiles_nothing(cache):
    assert python("print(*run('auto'), *run('auto'))", cache) == ["full 0 full 0"]


def test_code_that_cannot_be_written_is_used(filled):
    """The folder is below a file: the code of this process is as good; the compiler is replaced."""
    code = replaced_compiler(only(filled)) + "print(*run('fused'), *run('fused'))"
    for cache in ("/dev/null/x", ""):
        assert python(code, cache) == ["fused 1 fused 1"]


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

    def homeless():
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder() is None


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
        + "costs.COMPILE = 0.5 * 40 * 3 * 720 * costs.MULTIPLY_ADD  # some 720 edges a layer\n"
        + "print(*run('auto'), *run('auto'))"
    )
    assert python(code, cache) == ["fused 1 fused 1"]
    assert only(cache).read_bytes() == only(filled).read_bytes()


MISSING = {
    "missing": "import sys; sys.modules['numba'] = None\n",
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
    """`auto` takes what there was before, large work or small; `fused` says what is missing."""
    code = """
print(*run('auto'))
costs.COMPILE = 0.0
print(*run('auto'), *run('auto'))
print(*run('full'), *run('sparse'))
for _ in range(2):
    try:
        run('fused')
    except gbdnn.MissingPackageError as error:
        print(error)
"""
    found = python(code, tmp_path, before=MISSING[fault])
    assert found[0] == "full 0"
    assert found[1].replace("1", "0") == "full 0 full 0"
    assert found[2].replace("1", "0") == "full 0 sparse 0"
    assert len(found) == 5
    assert all("engine='fused' needs a working numba: " in line for line in found[3:])
    assert not list(tmp_path.iterdir())


def test_a_library_that_fails_is_tried_once(monkeypatch):
    tried = []

    def fail(dtype):
        tried.append(dtype)
        raise OSError("no code can be made executable here")

    monkeypatch.setattr("gbdnn.kernels.compiled.functions.functions", fail)
    form = FusedForm()
    for _ in range(2):
        assert not form.is_worth_loading(np.dtype("f4"), 1e12)
        with pytest.raises(gbdnn.MissingPackageError, match="numba: OSError: no code can be made"):
            form.load(np.dtype("f4"))
    assert tried == ["float32"]


def test_to_ask_for_a_file_once_more_takes_no_time(monkeypatch, tmp_path):
    """Small work asks at every call, as long as there is none."""
    monkeypatch.setenv("GBDNN_CACHE_DIR", str(tmp_path))
    sources = [tmp_path / "source.py"]
    sources[0].write_text("pass")
    code = Library(dict, {}, sources, "float32")
    assert not code.is_at_hand
    assert code.file.parent == tmp_path
    monkeypatch.setattr("gbdnn.kernels.compiled.library.version", None)
    assert not code.is_at_hand
    code.file.write_bytes(b"some")
    assert code.is_at_hand


def test_while_one_thread_compiles_others_go_on_without(monkeypatch):
    begun, done = threading.Event(), threading.Event()

    def compiling(dtype):
        begun.set()
        assert done.wait(60)

    monkeypatch.setattr("gbdnn.kernels.compiled.functions.functions", compiling)
    form = FusedForm()
    monkeypatch.setattr(form, "_is_at_hand", lambda _: done.is_set())
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(form.is_worth_loading, np.dtype("f4"), 1e12)
        assert begun.wait(60)
        assert not form.is_worth_loading(np.dtype("f4"), 1.0)
        done.set()
        assert large.result()
    assert form.is_worth_loading(np.dtype("f4"), 1.0)
