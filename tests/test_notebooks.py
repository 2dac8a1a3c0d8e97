"""The notebooks' code runs, top to bottom, and they are kept without outputs."""

import json
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path):
    cells = [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
    assert cells
    names = {}
    for cell in cells:
        assert cell["outputs"] == []
        exec(compile("".join(cell["source"]), path.name, "exec"), names)  # noqa: S102
    assert names["categories"].size > 0


def test_there_are_notebooks():
    assert NOTEBOOKS
