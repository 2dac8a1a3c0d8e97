"""Tables in the pages, where a code host shows them, too.

A page has them between ``<!-- table: NAME -->`` and ``<!-- end -->``; a test compares these with
the files of results. ``python docs/inlined.py`` writes them anew.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import beside_figure  # noqa: E402
import dense_tables  # noqa: E402
import scaling_page  # noqa: E402
import tables  # noqa: E402
import training_tables  # noqa: E402

_TABLE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->\n", re.DOTALL)


def made() -> dict[str, str]:
    """Return the tables by name."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "claim.md").write_text(beside_figure.claim(), encoding="utf-8")
        tables.make(HERE / "results.toml", folder)
        dense_tables.make(HERE / "real-networks.toml", folder)
        training_tables.make(HERE / "training.toml", folder)
        rows = scaling_page.rows(scaling_page.read(scaling_page.SOURCE))
        (folder / "scaling.md").write_text(rows, encoding="utf-8")
        return {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}


def filled(page: str, found: dict[str, str]) -> str:
    """Return a page with its tables as they are made now."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{found[match[1]].strip()}\n\n<!-- end -->\n"

    return _TABLE.sub(table, page)


def pages() -> dict[Path, str]:
    """Return the pages that have tables."""
    found = {file: file.read_text(encoding="utf-8") for file in sorted(HERE.glob("*.md"))}
    return {file: text for file, text in found.items() if _TABLE.search(text)}


if __name__ == "__main__":
    found = made()
    for file, text in pages().items():
        file.write_text(filled(text, found), encoding="utf-8")
