"""Run the notebooks and store their outputs; copy them into the site's gallery.

    python docs/notebook_runs.py                   # all notebooks in the folder notebooks/
    python docs/notebook_runs.py pipeline training  # these

The notebooks are stored with outputs, so that code hosts and the site can show them. Each one also
stores a fingerprint of its code; a test compares it with the cells to detect outdated outputs.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import nbformat

if TYPE_CHECKING:
    from nbformat import NotebookNode

HERE = Path(__file__).parent
NOTEBOOKS = HERE.parent / "notebooks"
GALLERY = HERE / "gallery"


def fingerprint(notebook: NotebookNode) -> str:
    """Return a hash of the sources of all cells of code."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode()).hexdigest()[:16]


def run(name: str) -> None:
    """Run a notebook in its own kernel, and store it with its outputs."""
    import nbclient

    file = NOTEBOOKS / f"{name}.ipynb"
    notebook = nbformat.read(file, as_version=4)
    place = {"metadata": {"path": NOTEBOOKS}}
    client = nbclient.NotebookClient(notebook, timeout=300, coalesce_streams=True, resources=place)
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # timestamps
    notebook.metadata = nbformat.from_dict(
        {
            "gbdnn": {"ran": fingerprint(notebook)},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    nbformat.write(notebook, file)


def copy() -> None:
    """Copy the notebooks into the site's gallery, each with a thumbnail.

    The thumbnail is the last picture, or that of the cell with ``thumbnail`` in its metadata.
    """
    for file in NOTEBOOKS.glob("*.ipynb"):
        there = GALLERY / file.name
        if not there.exists() or there.read_bytes() != file.read_bytes():
            shutil.copyfile(file, there)
        pictures = [
            (cell.metadata.get("gbdnn", {}).get("thumbnail", False), output.data["image/png"])
            for cell in nbformat.read(file, as_version=4).cells
            for output in cell.get("outputs", [])
            if "image/png" in output.get("data", {})
        ]
        _, chosen = max(reversed(pictures), key=lambda each: each[0])
        (GALLERY / f"{file.stem}.png").write_bytes(base64.b64decode(chosen))


if __name__ == "__main__":
    os.environ.pop("GBDNN_DATA", None)  # use only data that ships with packages
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    for name in sys.argv[1:] or sorted(file.stem for file in NOTEBOOKS.glob("*.ipynb")):
        began = perf_counter()
        run(name)
        print(f"{name}: {perf_counter() - began:.0f} s")
