"""The README: what it shows is what runs, prints and was measured."""

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_two_commands_for_a_newcomer():
    """The first makes an environment and runs the challenge, the second the tests."""
    first, second = (line for block in blocks("sh") for line in block.splitlines())
    assert first.endswith("gbdnn challenge")
    assert second.endswith("pytest -n auto")


def test_the_example_prints_what_is_shown():
    pytest.importorskip("sklearn")
    (code,), (text,) = blocks("python"), blocks("text")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})  # noqa: S102
    assert printed.getvalue() == text
