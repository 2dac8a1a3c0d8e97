"""Intermediate code that a wheel carries: LLVM alone makes machine code, with the same bits."""

import lzma
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types

import gbdnn
from gbdnn.kernels.compiled.functions import libraries
from gbdnn.kernels.compiled.library import Library, pair_lines

CARRIED = "gbdnn.kernels.compiled.library._CARRIED"
HOOK = Path(__file__).parents[2] / ".ci" / "build_hook.py"


def make(lines):
    def weighted(a, b):
        return lines * a + b

    return {"weighted": (weighted, types.int64(types.int64, types.int64))}


def small(sources, make=make):
    return Library(make, {"weighted": 2}, sources, "small")


@pytest.fixture
def carried(tmp_path, monkeypatch):
    """Some source, whose code is carried."""
    source = tmp_path / "source.py"
    source.write_text("one")
    code = small([source])
    for lines in (2, 4):
        data = lzma.compress(code.intermediate(lines).encode())
        (tmp_path / code.intermediate_name(lines)).write_bytes(data)
    monkeypatch.setattr(CARRIED, tmp_path)
    monkeypatch.setenv("GBDNN_CACHE_DIR", "")
    return source


def test_carried_code_is_not_made_again(carried):
    code = small([carried], make=None)
    assert code.is_carried
    assert code.functions()["weighted"](10, 3) == 10 * pair_lines() + 3


def test_a_numba_without_its_private_names_compiles_too(monkeypatch):
    monkeypatch.delattr("numba.core.codegen.JITCPUCodegen")
    monkeypatch.setenv("GBDNN_CACHE_DIR", "")
    code = small([])
    assert code.functions()["weighted"](10, 3) == 10 * pair_lines() + 3


def test_carried_code_of_other_sources_is_not_taken(carried):
    carried.write_text("two")
    with pytest.raises(TypeError, match="NoneType"):
        small([carried], make=None).functions()
    code = small([carried])  # owns what is called
    assert not code.is_carried
    assert code.functions()["weighted"](1, 1) == pair_lines() + 1


def test_all_libraries_have_names_of_their_own():
    names = {each.intermediate_name(lines) for each in libraries() for lines in (2, 4)}
    assert len(names) == 2 * len(libraries())


ANSWER = """
import sys
from pathlib import Path
import numpy as np
import gbdnn
from gbdnn.kernels.compiled import library

library._CARRIED = Path(sys.argv[1])
library.Library.intermediate = None
random = np.random.default_rng(0)
W = np.where(random.random((90, 90)) < 0.2, random.normal(size=(90, 90)), 0)
X = random.normal(size=(77, 90))
Y = gbdnn.infer([W] * 3, X, bias=0.1, engine="fused", dtype="FP32")
np.save(sys.argv[2], Y.to_dense(fill_value=0))
"""


@pytest.mark.slow
def test_the_kernels_of_a_wheel(tmp_path):
    (write,) = re.findall(r'WRITE = """(.*?)"""', HOOK.read_text(), re.DOTALL)
    one = (
        "import gbdnn.kernels.compiled.functions as f; f.libraries = lambda: [f.library('float32')]"
    )
    env = os.environ | {"GBDNN_CACHE_DIR": ""}
    arguments = [tmp_path, str(pair_lines())]
    subprocess.run([sys.executable, "-c", one + write, *arguments], env=env, check=True)
    out = tmp_path / "answer.npy"
    subprocess.run([sys.executable, "-c", ANSWER, tmp_path, out], env=env, check=True)
    random = np.random.default_rng(0)
    W = np.where(random.random((90, 90)) < 0.2, random.normal(size=(90, 90)), 0)
    X = random.normal(size=(77, 90))
    expected = gbdnn.infer([W] * 3, X, bias=0.1, engine="fused", dtype="FP32").to_dense(
        fill_value=0
    )
    assert 0 < np.count_nonzero(expected) < expected.size
    np.testing.assert_array_equal(np.load(out), expected)
