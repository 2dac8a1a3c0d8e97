"""Some of the cases of `fuzz_formats`; each is read right or refused, and none ends a process."""

import fuzz_formats
import pytest


def require_good(cases, seed):
    counts, failures = fuzz_formats.fuzz(cases, seed)
    assert not failures, failures
    assert counts["read"] > cases / 20
    assert counts["refused"] > cases / 4
    assert counts.total() == cases


def test_damaged_files():
    require_good(600, 11)


@pytest.mark.slow
def test_many_damaged_files():
    require_good(20_000, 12)


def test_a_crash_a_hang_and_a_misreading_are_found(monkeypatch):
    monkeypatch.setattr(fuzz_formats, "SECONDS", 4.0)
    worker = fuzz_formats.Worker()
    try:
        assert "FAILED KeyError" in worker.ask("no-such-format", 1)
        assert worker.ask("crash", 1) == "FAILED the process ended with -11"
        assert worker.ask("hang", 1) == "FAILED hangs"
        assert "FAILED MisreadError" in worker.ask("misreading", 1)
    finally:
        worker.close()
