"""The serial share on the page on threads."""

import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def docs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


@pytest.mark.parametrize("share", [0.0, 0.07, 0.5, 1.0])
def test_the_serial_share_is_found(docs, share):
    page = pytest.importorskip("scaling_page", exc_type=ImportError)
    counts = [1, 2, 3, 8, 40]
    summary = [{"nthreads": n, "speed_up": n / (n * share + 1 - share)} for n in counts]
    assert page.serial_share(summary) == pytest.approx(share, abs=1e-12)


def test_the_share_stays_one(docs):
    page = pytest.importorskip("scaling_page", exc_type=ImportError)
    slower = [{"nthreads": 1, "speed_up": 1.0}, {"nthreads": 2, "speed_up": 0.8}]
    faster = [{"nthreads": 1, "speed_up": 1.0}, {"nthreads": 2, "speed_up": 2.3}]
    assert (page.serial_share(slower), page.serial_share(faster)) == (1.0, 0.0)
    assert page.serial_share(slower[:1]) == 0.0
