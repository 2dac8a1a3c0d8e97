"""What a report of a fault prints."""

import numpy as np

import gbdnn


def facts(capsys):
    gbdnn.show_versions()
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_versions_and_settings_are_shown(capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("SECRET", "hidden")
    found = facts(capsys)
    assert found["gbdnn"] == gbdnn.__version__
    assert found["numpy"] == np.__version__
    assert found["SuiteSparse:GraphBLAS"].count(".") == 2
    assert found["OMP_NUM_THREADS"] == "3"
    assert {"Python", "processor", "cores", "system", "python-graphblas", "fused"} <= found.keys()
    assert "SECRET" not in found
