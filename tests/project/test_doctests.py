"""The examples in docstrings run when they are pasted as they stand, and give what they show."""

import doctest
import importlib
import pkgutil

import pytest

import gbdnn
from gbdnn.errors import MissingPackageError


def examples():
    """Every docstring with examples, by the module it is in."""
    found = {}
    finder = doctest.DocTestFinder(exclude_empty=True)
    for info in pkgutil.walk_packages(gbdnn.__path__, "gbdnn."):
        if info.name == "gbdnn.__main__":  # runs the shell
            continue
        try:
            module = importlib.import_module(info.name)
        except (ImportError, SystemExit):  # an optional package is missing
            continue
        found |= {test.name: test for test in finder.find(module) if test.examples}
    return found


EXAMPLES = examples()


class Runner(doctest.DebugRunner):
    """Raises at the first fault, so that pytest shows where."""

    def report_failure(self, out, test, example, got):
        wanted = f"{example.source}expected:\n{example.want}found:\n{got}"
        pytest.fail(f"{test.name}: {wanted}", pytrace=False)


FRAMEWORKS = ("gbdnn.distributed.mpi.", "gbdnn.distributed.stats.", "gbdnn.io.frameworks.torch.")
MARKS = {name: [pytest.mark.frameworks] * name.startswith(FRAMEWORKS) for name in EXAMPLES}
CASES = [pytest.param(test, id=name, marks=MARKS[name]) for name, test in EXAMPLES.items()]


@pytest.mark.filterwarnings("ignore:layer . has .* edges per neuron")
@pytest.mark.parametrize("test", CASES)
def test_example(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Not the module's names: an example has the imports that it needs.
    test.globs = {"__name__": "__main__"}
    try:
        Runner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    except doctest.UnexpectedException as failure:
        _, error, _ = failure.exc_info
        if isinstance(error, MissingPackageError):
            pytest.skip(str(error))
        raise error from None
