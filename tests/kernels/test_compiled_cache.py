"""Compiled code on disk: written once, never trusted blindly, never in the way."""

import hashlib
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import Forked

from gbdnn.kernels.compiled.code_file import CodeFile, UntrustedError
from gbdnn.kernels.compiled.functions import library
from gbdnn.kernels.compiled.library import cache_folder

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
    return "+".join(sorted({s.form for s in stats})), len(compiled)
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
data = Path({file!r}).read_bytes()
code = data[40 + int.from_bytes(data[32:40], "little") :]
Library.compile = lambda self: compiled.append(1) or code
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
        + "costs.COMPILE = 0.5 * 40 * 3 * 720 * costs.MACHINE.full  # some 720 edges a layer\n"
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
    found = python(code, tmp_path, "no fused form", before=MISSING[fault])
    assert found[0] == "full 0"
    assert found[1].replace("1", "0") == "full 0 full 0"
    assert found[2].replace("1", "0") == "full 0 sparse 0"
    assert len(found) == 5
    assert all("engine='fused' needs a working numba: " in line for line in found[3:])
    assert not list(tmp_path.iterdir())


FAILS_ONCE = """
import numba
def fail(*args, **options):
    raise MemoryError("no memory")
numba.cfunc = fail
"""


def test_a_compilation_that_fails_is_told_once_and_tried_by_the_next_process(filled, tmp_path):
    """Whatever it fails of: the first process goes on without, and leaves nothing."""
    code = "costs.COMPILE = 0.0\n" + PREPARED_AT_ONCE + "print(*run('auto'), *run('auto'))"
    told = python(code, tmp_path, "MemoryError: no memory", before=FAILS_ONCE)
    assert told == ["full 1 full 1"]
    assert not list(tmp_path.iterdir())
    assert python(replaced_compiler(only(filled)) + code, tmp_path) == ["fused 1 fused 1"]


NO_FMA = """
import llvmlite.binding as llvm
from llvmlite.binding.targets import FeatureMap
plain = llvm.get_host_cpu_features
def without():
    return FeatureMap({**plain(), "fma": False, "fma4": False})
llvm.get_host_cpu_features = without
llvm.get_process_triple = lambda: "x86_64-unknown-linux-gnu"  # on other machines, too
"""


def test_a_processor_without_fused_multiply_adds_never_takes_the_form(filled, tmp_path):
    """Each would be a call of the C library; nothing is compiled for it, and nobody is warned."""
    code = replaced_compiler(only(filled)) + PREPARED_AT_ONCE + "costs.COMPILE = 0.0\n"
    code += "run('sparse')\n" + NO_FMA + "print(*run('auto'), *run('auto', 9))"
    assert python(code, tmp_path) == ["full 0 full 0"]
    assert not list(tmp_path.iterdir())


# What is on disk


@pytest.fixture
def kept(tmp_path):
    """A file of code, and the code."""
    tmp_path.chmod(0o700)
    file = CodeFile(tmp_path, "float32", b"numba 1\nchain void(int64)")
    file.write(b"machine code")
    assert file.is_there
    assert file.read() == b"machine code"
    return file


def signed(content):
    return hashlib.sha256(content).digest() + content


def test_code_is_what_its_name_says(kept):
    """Whatever has a right digest, and is in the place of another one, is no code."""
    folder, good = kept.path.parent, kept.path.read_bytes()
    keys = {
        "another dtype": ("float64", b"numba 1\nchain void(int64)\nfloat64"),
        "other functions": ("steps-float32", b"numba 1\nsteps int64(int64,int64)"),
        "another version": ("float32", b"numba 2\nchain void(int64)"),
        "a longer key": ("float32", b"numba 1\nchain void(int64)\nmore"),
        "a shorter one": ("float32", b"numba 1\nchain"),
    }
    for what, (label, key) in keys.items():
        other = CodeFile(folder, label, key)
        other.write(b"other code")
        assert other.path != kept.path, what
        other.path.replace(kept.path)
        assert kept.read() is None, what
        kept.path.write_bytes(good)
        assert kept.read() == b"machine code"
    for content in (b"", b"noise", signed(b""), signed(b"noise" * 1000), good[32:], good[:-1]):
        kept.path.write_bytes(content)
        assert kept.read() is None, content[:40]


def replaced_by(kind, path, aside):
    content = path.read_bytes()
    path.unlink()
    if kind == "a link":
        aside.write_bytes(content)
        path.symlink_to(aside)
    elif kind == "a link to nothing":
        path.symlink_to(aside)
    elif kind == "a FIFO":
        os.mkfifo(path, 0o600)
    elif kind == "a folder":
        path.mkdir(mode=0o700)
    elif kind == "a socket":
        here = os.open(path.parent, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX) as server:  # their paths are short
            server.bind(f"/proc/self/fd/{here}/{path.name}")
        os.close(here)
        path.chmod(0o600)
    else:
        path.write_bytes(content)
        path.chmod({"one that a group may write": 0o664, "one that all may write": 0o606}[kind])


@pytest.mark.parametrize(
    "kind",
    ["a link", "a link to nothing", "a FIFO", "a folder",
     *(["a socket"] if Path("/proc/self/fd").exists() else []),
     "one that a group may write", "one that all may write"],
)  # fmt: skip
def test_only_a_regular_file_that_nobody_else_may_write_is_read(kind, kept, tmp_path_factory):
    """What is in its place is replaced by the next code, if it is no folder."""
    aside = tmp_path_factory.mktemp("aside") / "code"
    replaced_by(kind, kept.path, aside)
    assert not kept.is_there
    if kind == "a socket":  # it cannot be opened
        assert kept.read() is None
    else:
        with pytest.raises(UntrustedError, match=re.escape(str(kept.path))):
            kept.read()
    kept.write(b"new code")
    if kind != "a folder":
        assert kept.read() == b"new code"
    assert not aside.exists() or aside.read_bytes() != b"new code"
    assert not list(kept.path.parent.glob("*.tmp"))


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_only_a_folder_that_nobody_else_may_write_is_used(mode, kept):
    before = kept.path.read_bytes()
    kept.path.parent.chmod(mode)
    assert not kept.is_there
    with pytest.raises(UntrustedError, match="can be written by others: chmod go-w"):
        kept.read()
    kept.write(b"new code")
    assert kept.path.read_bytes() == before
    kept.path.parent.chmod(0o755)
    assert kept.read() == b"machine code"


def test_old_files_and_those_of_killed_writers_are_removed(kept):
    """Not before they have been of no use for long; one that is read stays."""
    folder, day = kept.path.parent, 86_400
    ages = {
        "kernels-float64-0.o": 91 * day, "kernels-steps-float32-1.o": 100 * day,
        "kernels-abc.tmp": day, "kernels-float64-2.o": 80 * day, "kernels-def.tmp": 60,
        "other.o": 1000 * day, "notes.tmp": 1000 * day,
    }  # fmt: skip
    for name, age in ages.items():
        (folder / name).write_bytes(b"")
        os.utime(folder / name, (time.time() - age,) * 2)
    os.utime(kept.path, (time.time() - 89 * day,) * 2)
    assert kept.read() == b"machine code"
    assert time.time() - kept.path.stat().st_mtime < day
    CodeFile(folder, "float32", b"another").write(b"code")
    left = {"kernels-float64-2.o", "kernels-def.tmp", "other.o", "notes.tmp", kept.path.name}
    assert {path.name for path in folder.iterdir()} > left
    assert len(list(folder.iterdir())) == len(left) + 1


def test_a_write_that_fails_leaves_what_was_there(kept, monkeypatch):
    def fail(*_):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    kept.write(b"new code")
    assert kept.read() == b"machine code"
    assert [path.name for path in kept.path.parent.iterdir()] == [kept.path.name]


def test_untrusted_code_is_compiled_anew_and_why_is_said_once(filled, folder, tmp_path):
    code = replaced_compiler(only(filled)) + "print(*run('fused'), *run('fused'))"
    replaced_by("a FIFO", only(folder), tmp_path / "aside")
    assert python(code, folder, "its machine code is not loaded") == ["fused 1 fused 1"]
    assert python(code, folder) == ["fused 0 fused 0"]
    folder.chmod(0o777)
    assert python(code, folder, "can be written by others") == ["fused 1 fused 1"]


def test_functions_outlive_the_library_that_loaded_them(filled):
    code = """
import gc, importlib
from gbdnn.kernels.compiled import functions as module
count = module.functions('float32')['count']
importlib.reload(module)
gc.collect()
block, counts = np.eye(16, dtype='f4'), np.zeros(16, np.int64)
count(block.ctypes.data, 16, 16, 16, counts.ctypes.data)
print(counts.tolist())
"""
    assert python(code, filled) == [str([1] * 16)]


def test_threads_share_one_library_of_each_kind(filled):
    """Whoever makes a library waits for a second thread that also makes one, which never comes."""
    code = """
import threading
from concurrent.futures import ThreadPoolExecutor
plain, both = Library.__init__, threading.Barrier(2)

def init(self, *args, **options):
    try:
        both.wait(0.2)
    except threading.BrokenBarrierError:
        pass
    plain(self, *args, **options)

def first_call(make):
    from gbdnn.kernels.compiled import functions
    return getattr(functions, make)('float32')

Library.__init__ = init
for make in ('library', 'step_library', 'gather_library'):
    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(first_call, [make] * 2))
    print(len(found))
"""
    assert python(code, filled) == ["1"] * 3


def test_code_under_another_name_is_not_run(filled, folder):
    """Here that of FP32 under FP64's: its functions would write beyond what they are given."""
    code = """
from gbdnn.kernels.compiled.functions import library, step_library
for other in (library('float64'), step_library('float32')):
    other.file.write_bytes(library('float32').file.read_bytes())
    print(other.is_at_hand, other._read())
"""
    assert python(code, folder) == ["True None", "True None"]
