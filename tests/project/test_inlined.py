"""The tables, numbers and figures of the pages agree with the files of results.

If these tests fail, run ``python docs/inlined.py``.
"""

import importlib
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def docs():
    """Import a module of the folder docs/."""
    pytest.importorskip("matplotlib")
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(DOCS)):
            del sys.modules[name]


def test_tables_and_numbers(docs):
    inlined, numbers = docs("inlined"), docs("quantities").made()
    found, pages = inlined.made(), inlined.pages()
    assert "README" in {file.stem for file in pages}
    assert not [
        file.name for file, text in pages.items() if inlined.filled(text, found, numbers) != text
    ]
    shown = "".join(pages.values())
    assert not [name for name in found if f"<!-- table: {name} -->" not in shown]
    assert not [name for name in numbers if f"<!-- ={name} -->" not in shown]


def test_figures(docs):
    inlined = docs("inlined")
    for name, digest in inlined.sources().items():
        assert digest in (inlined.FIGURES / name).read_text(encoding="utf-8"), name
        assert any(f"_static/{name}" in text for text in inlined.pages().values())
