"""Every notebook runs top to bottom in a kernel, small, and is kept without outputs."""

import json
import os
from pathlib import Path

import pytest

import gbdnn

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
NEEDS = {
    "first_inference": {"matplotlib", "sklearn"},
    "from_pytorch": {"matplotlib", "sklearn", "torch"},
    "inside": {"matplotlib", "sklearn"},
    "pipeline": {"matplotlib", "networkx", "sklearn"},
    "training": {"matplotlib", "sklearn"},
    "thread_scaling": {"matplotlib", "sklearn", "typer"},
    "workers": {"matplotlib", "sklearn"},
}


def cells(name):
    found = json.loads((NOTEBOOKS / f"{name}.ipynb").read_text())["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def test_every_notebook_is_here():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == NEEDS.keys()


@pytest.mark.parametrize("name", NEEDS)
def test_kept_without_outputs(name):
    assert cells(name)
    assert all(cell["outputs"] == [] for cell in cells(name))
    assert all(cell["execution_count"] is None for cell in cells(name))


@pytest.mark.parametrize("name", NEEDS)
def test_runs(name, monkeypatch):
    for package in NEEDS[name]:
        pytest.importorskip(package)
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    # The gbdnn that is tested, installed or not.
    monkeypatch.setenv("PYTHONPATH", str(Path(gbdnn.__file__).parent.parent), prepend=os.pathsep)
    monkeypatch.setenv("GBDNN_SMALL", "1")
    notebook = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": NOTEBOOKS}}
    )
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in outputs)
