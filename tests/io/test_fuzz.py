"""Some of the cases of `fuzz_formats`; each is read right or refused, and none ends a process."""

import fuzz_formats
import pytest

pytestmark = pytest.mark.frameworks  # more formats are there


def require_good(cases, seed):
    counts, failures, by_format = fuzz_formats.fuzz(cases, seed)
    assert not failures, failures
    assert counts["read"] > cases / 20
    assert counts["refused"] > cases / 4
    assert counts.total() == cases
    if cases > 1000:  # of few, all of a format may be damaged
        assert all(found["read"] for found in by_format.values()), by_format


@pytest.mark.parametrize("cases", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_damaged_files(cases):
    require_good(cases, 11)


def test_an_array_without_rows_is_judged():
    assert fuzz_formats.run_case("matrix_market", 120003660) == "read"


@pytest.mark.slow
def test_a_crash_a_hang_and_a_misreading_are_found(monkeypatch):
    worker = fuzz_formats.Worker()
    try:
        assert "FAILED KeyError" in worker.ask("no-such-format", 1)
        assert worker.ask("crash", 1) == "FAILED the process ended with -11"
        assert "FAILED MisreadError" in worker.ask("misreading", 1)
        if fuzz_formats.Memory().growth() is not None:  # where the system tells
            assert worker.ask("memory", 1).endswith(" MiB")
        monkeypatch.setattr(fuzz_formats, "SECONDS", 0.5)
        assert worker.ask("hang", 1) == "FAILED hangs"
    finally:
        worker.close()
