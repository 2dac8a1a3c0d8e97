"""The README: its commands, and the calls in its table; `test_docs.py` runs its examples."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_two_commands_for_a_newcomer():
    """The first makes an environment and runs the challenge, the second the tests."""
    first, second = (line for block in blocks("sh") for line in block.splitlines())
    assert first.endswith("gbdnn challenge")
    assert second.endswith("pytest -n auto")


def test_rows_of_gbdnn_are_calls_that_run():
    import numpy as np

    import gbdnn

    calls = re.findall(r"^\| `(gbdnn\.infer\(.*?\))`", README, re.MULTILINE)
    assert len(calls) == 2
    names = {"gbdnn": gbdnn, "net": [np.eye(3)], "X": np.eye(3)}
    for call in calls:
        assert eval(call, names).nvals == 3  # noqa: S307
