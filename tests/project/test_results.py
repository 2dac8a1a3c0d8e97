"""The tables and figures of the pages agree with the files of results.

If these tests fail, run ``python docs/tables.py`` or ``python docs/result_figures.py``.
"""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def docs(monkeypatch):
    """Import a module of the folder docs/."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module
    for name in ("tables", "measured", "result_figures"):
        sys.modules.pop(name, None)


def test_tables(docs):
    tables = docs("tables")
    found, pages = tables.made(), tables.pages()
    assert "README" in {file.stem for file in pages}
    assert not [file.name for file, text in pages.items() if tables.filled(text, found) != text]
    shown = "".join(pages.values())
    assert not [name for name in found if f"<!-- table: {name} -->" not in shown]


def test_figures(docs):
    figures = docs("result_figures")
    text = "".join(file.read_text(encoding="utf-8") for file in DOCS.glob("*.md"))
    for name in figures.SOURCES:
        assert figures.drawn_from(name) in (figures.FOLDER / name).read_text(encoding="utf-8")
        assert f"_static/{name}" in text


def test_files_of_results_are_printed_by_measured(docs):
    """Their keys are those that the tables read, for every kind."""
    assert {f"{kind}.toml" for kind in docs("measured").KINDS} == {
        file.name for file in DOCS.glob("*.toml") if file.name != "results.toml"
    }
