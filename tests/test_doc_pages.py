"""The pages' tables that are computed: the model of scaling, and a result's line."""

import json
import pathlib
import tomllib

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def docs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


@pytest.mark.parametrize("share", [0.0, 0.07, 0.5, 1.0])
def test_the_serial_share_is_found(docs, share):
    page = pytest.importorskip("scaling_page", exc_type=ImportError)
    counts = [1, 2, 3, 8, 40]
    summary = [{"nthreads": n, "speed_up": n / (n * share + 1 - share)} for n in counts]
    assert page.serial_share(summary) == pytest.approx(share, abs=1e-12)
    assert page.modelled(share, 40) == pytest.approx(summary[-1]["speed_up"])


def test_the_share_stays_one(docs):
    page = pytest.importorskip("scaling_page", exc_type=ImportError)
    slower = [{"nthreads": 1, "speed_up": 1.0}, {"nthreads": 2, "speed_up": 0.8}]
    faster = [{"nthreads": 1, "speed_up": 1.0}, {"nthreads": 2, "speed_up": 2.3}]
    assert (page.serial_share(slower), page.serial_share(faster)) == (1.0, 0.0)
    assert page.serial_share(slower[:1]) == 0.0


def test_a_line_of_the_results_page(docs):
    import tables

    found = {
        "problem": {"neurons": 4096, "layers": 480, "inputs": 60_000, "seed": 0},
        "nthreads": 2,
        "compress": False,
        "streamed": False,
        "rounds": 3,
        "engine": "auto",
        "seconds": {"auto": [9.0, 7.0, 8.5]},
        "edges_per_second": 4.4e11,
        "memory_needed": {},
        "memory_peak": 3 << 30,
        "categories": 7,
    }
    (line,) = tomllib.loads(f"runs = [\n{tables.line_of(found)}\n]")["runs"]
    assert (line["seconds"], line["of"], line["gib"]) == (8.5, "median of 3", 3.0)
    assert (line["neurons"], line["layers"], line["command"]) == (4096, 480, "larger")
    first = found | {"rounds": 0, "seconds": {"auto": [9.0]}, "streamed": True}
    assert json.dumps("first run, streamed") in tables.line_of(first)
    assert tables.row_of(found)[2] == "8.500 (7.000 to 9.000)"
