"""What a report of a fault prints."""

import re

import numpy as np
from patches import uncompiled

import gbdnn
from gbdnn.challenge.machine import compiled_kernels
from gbdnn.kernels.compiled import loading


def test_versions_and_settings_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SECRET", "hidden")
    gbdnn.show_versions()
    found = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (found["gbdnn"], found["numpy"]) == (gbdnn.__version__, np.__version__)
    assert found["SuiteSparse:GraphBLAS"].count(".") == 2
    assert found["OMP_NUM_THREADS"] == "3"
    assert {"Python", "processor", "cores", "system", "python-graphblas"} <= found.keys()
    assert "SECRET" not in found


def test_the_compiled_kernels_are_shown(capfd, monkeypatch):
    found = (loading.library(dtype) for dtype in ("float32", "float64"))
    assert compiled_kernels() == ", ".join(each.name for each in found)
    uncompiled(monkeypatch)
    plain = (loading.library(dtype) for dtype in ("float32", "float64"))
    names = ", ".join(each.name for each in plain if each) or "none for this processor"
    gbdnn.show_versions()
    assert re.search(f"compiled kernels +{names}\n", capfd.readouterr().out)
