"""The lists of engines on the pages, in docstrings and in types."""

import re
from pathlib import Path
from typing import get_args

from gbdnn.engine import plan

ROOT = Path(__file__).parents[2]


def test_docstrings_pages_and_types_list_all_engines():
    some, known = plan.ENGINES, get_args(plan.Engine)
    assert known == (*some, "lagraph")
    sources = "".join(file.read_text() for file in (ROOT / "gbdnn").rglob("*.py"))
    lists = re.findall(r"^    engine : \{(.*)\}, default", sources, re.MULTILINE)
    assert set(lists) == {", ".join(f'"{name}"' for name in names) for names in (some, known)}
    page = (ROOT / "docs" / "how-to" / "resources.md").read_text()
    table = page[page.index("| `engine=` |") : page.index("On the challenge, the fused")]
    assert set(re.findall(r'^\| `"(\w+)"`', table, re.MULTILINE)) == set(known)
