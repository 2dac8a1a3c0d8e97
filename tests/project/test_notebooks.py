"""Every notebook is stored with its outputs, and runs from top to bottom with a small problem.

A cell's metadata may have `small`: code that the tests run after the cell, to reduce the problem.
"""

import importlib
import os
import sys
from pathlib import Path

import pytest

import gbdnn

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "notebooks"
NEEDS = {
    "accelerate": {"matplotlib", "torch"}, "challenge": {"matplotlib", "safetensors", "sklearn"},
    "communities": {"matplotlib", "networkx"}, "first_inference": {"matplotlib", "sklearn"},
    "from_pytorch": {"matplotlib", "onnx", "sklearn", "torch"},
    "pipeline": {"matplotlib", "sklearn"}, "training": {"matplotlib", "sklearn"},
    "thread_scaling": {"matplotlib", "safetensors", "sklearn", "typer", "xxhash"},
    "thread_scaling_graph": {"matplotlib"}, "thread_scaling_yours": {"matplotlib"},
}  # fmt: skip


WITHOUT = """
import sys
from importlib.machinery import PathFinder


class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, *rest):
        is_missing = name.partition(".")[0] in missing
        return None if is_missing else PathFinder.find_spec(name, *rest)


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""


def read(name):
    nbformat = pytest.importorskip("nbformat")
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def outputs(notebook):
    return [output for cell in code(notebook) for output in cell.outputs]


@pytest.fixture
def notebook_runs(monkeypatch):
    pytest.importorskip("nbformat")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    yield importlib.import_module("notebook_runs")
    sys.modules.pop("notebook_runs", None)


def test_every_notebook_is_here():
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == NEEDS.keys()


@pytest.mark.parametrize("name", NEEDS)
def test_shown(name):
    """In the folder's list, and in the site's gallery as a card and a page."""
    assert f"]({name}.ipynb) |" in (NOTEBOOKS / "README.md").read_text()
    gallery = (ROOT / "docs" / "gallery" / "index.md").read_text()
    assert f":link: {name}\n" in gallery
    assert f"\n{name}\n" in gallery


@pytest.mark.parametrize("name", NEEDS)
def test_kept_with_its_outputs(name, notebook_runs):
    """Otherwise: python docs/notebook_runs.py NAME."""
    notebook = read(name)
    assert notebook.metadata.gbdnn.ran == notebook_runs.fingerprint(notebook)
    counts, found = [cell.execution_count for cell in code(notebook)], outputs(notebook)
    assert counts == [*range(1, len(counts) + 1)]
    assert not [each for each in found if each.output_type == "error" or "stderr" in each.values()]
    assert any("image/png" in each.get("data", {}) for each in found)
    assert (NOTEBOOKS / f"{name}.ipynb").stat().st_size < 400_000


@pytest.mark.frameworks
@pytest.mark.pages
@pytest.mark.slow
@pytest.mark.parametrize("name", NEEDS)
def test_runs(name, monkeypatch, tmp_path):
    """With the extra `notebooks`, and what the list above says, alone."""
    for package in NEEDS[name]:
        pytest.importorskip(package)
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    # Packages of other extras and of the tests are not installed.
    others = {"ziglang", "torch", "onnx", "onnxruntime", "xarray", "dask", "mpi4py", "hypothesis"}
    text = f"missing = {sorted(others - NEEDS[name])}\n{WITHOUT}"
    (tmp_path / "sitecustomize.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    # The gbdnn that is tested, installed or not.
    monkeypatch.setenv("PYTHONPATH", str(Path(gbdnn.__file__).parent.parent), prepend=os.pathsep)
    monkeypatch.delenv("GBDNN_DATA", raising=False)
    notebook = read(name)
    small = [cell for cell in code(notebook) if "small" in cell.metadata.get("gbdnn", {})]
    assert small
    for cell in small:
        cell.source += f"\n{cell.metadata.gbdnn.small}"
    options = {"kernel_name": "python3", "resources": {"metadata": {"path": NOTEBOOKS}}}
    nbclient.NotebookClient(notebook, timeout=600, **options).execute()
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
