"""The paper has the form that the Journal of Open Source Software asks for."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_, _, BODY = (DOCS / "paper.md").read_text(encoding="utf-8").split("---\n", 2)


def test_what_is_cited_is_in_the_bibliography():
    entries = re.findall(r"^@\w+\{(\w+),", (DOCS / "paper.bib").read_text("utf-8"), re.MULTILINE)
    assert set(re.findall(r"@(\w+)", BODY)) == set(entries)


def test_speeds_are_those_of_the_pages():
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    seconds, times = re.search(
        r"takes\s+([\d.]+) s on.*?takes ([\d.]+) times", BODY, re.DOTALL
    ).groups()
    assert f"**{seconds}**" in readme
    assert f"{times} times as fast as MKL" in (DOCS / "comparison.md").read_text(encoding="utf-8")
    steps = re.search(r"is ([\d.]+ to [\d.]+ times) as fast", BODY)[1]
    assert steps in (DOCS / "training.md").read_text(encoding="utf-8")
