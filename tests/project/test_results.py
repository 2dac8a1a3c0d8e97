"""The tables and figures of the pages agree with the files of results.

If these tests fail, run ``python docs/tables.py`` or ``python docs/result_figures.py``.
"""

import importlib
import json
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


@pytest.mark.parametrize("share", [0.0, 0.05, 0.3, 1.0])
def test_amdahls_law_is_fitted_from_four_numbers_of_threads(docs, share):
    """The table of threads has the serial share of speed-ups that follow the law."""
    tables = docs("tables")
    for count in (3, 4, 5):
        threads = [2**k for k in range(count)]
        rows = [
            {"program": "fused", "threads": n, "seconds": 1.0, "edges_per_second": 1e9,
             "speed_up": 1 / (share + (1 - share) / n), "speed_up_low": 1.0, "speed_up_high": 16.0}
            for n in threads
        ]  # fmt: skip
        report = json.loads((DOCS / "scaling" / "threads.json").read_text(encoding="utf-8"))
        network = report["networks"][0] | {"rows": rows}
        text = tables._scaling([report | {"threads": threads, "networks": [network]}])
        assert ("serial share" in text) == (count >= 4)
        assert (f"| {share:.1%} |" in text) == (count >= 4)
