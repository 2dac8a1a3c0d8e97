"""The tables in the pages are those of the files of results."""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def inlined():
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("inlined")
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(DOCS)):
            del sys.modules[name]


def test_every_table_is_made_of_the_results(inlined):
    found = inlined.made()
    pages = inlined.pages()
    assert {file.stem for file in pages} >= {"results", "comparison", "training", "when-to-use"}
    assert not [file.name for file, text in pages.items() if inlined.filled(text, found) != text]
    shown = "".join(pages.values())
    assert not [name for name in found if f"<!-- table: {name} -->" not in shown]


def test_every_figure_is_drawn_from_the_results(inlined):
    """Otherwise: python docs/inlined.py."""
    for name, digest in inlined.sources().items():
        assert digest in (inlined.FIGURES / name).read_text(encoding="utf-8"), name
        assert any(f"_static/{name}" in text for text in inlined.pages().values())


def test_another_number_is_seen(inlined):
    found = inlined.made()
    text = inlined.pages()[DOCS / "results.md"]
    assert (
        inlined.filled(text.replace("| 1024 | 120 | 0.666 |", "| 1024 | 120 | 0.566 |"), found)
        == text
    )
