"""Tables, figures and numbers of results in the pages, where a code host shows them, too.

A page has tables between ``<!-- table: NAME -->`` and ``<!-- end -->``, numbers of its sentences
between ``<!-- =NAME -->`` and ``<!-- = -->`` (no line may begin with it), figures are in
``_static``; a test compares all with the files of results. ``python docs/inlined.py`` makes them
anew.
"""

from __future__ import annotations

import re
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib import rc_context

from gbdnn.challenge import published

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import dense_tables  # noqa: E402
import density_figure  # noqa: E402
import figures  # noqa: E402
import published_figure  # noqa: E402
import quantities  # noqa: E402
import scaling_page  # noqa: E402
import tables  # noqa: E402
import training_tables  # noqa: E402

FIGURES = HERE / "_static"
_TABLE = re.compile(r"<!-- table: (\S+) -->\n.*?<!-- end -->\n", re.DOTALL)
_NUMBER = re.compile(r"<!-- =(\S+) -->[^<]*<!-- = -->")


def made() -> dict[str, str]:
    """Return the tables by name."""
    with TemporaryDirectory() as directory:
        folder = Path(directory)
        tables.make(HERE / "results.toml", folder)
        dense_tables.make(HERE / "real-networks.toml", folder)
        dense_tables.make_accelerate(HERE / "accelerate.toml", folder)
        dense_tables.make_graph(HERE / "graph.toml", folder)
        training_tables.make(HERE / "training.toml", folder)
        reports = scaling_page.read(scaling_page.files())
        threads = {
            "scaling.md": scaling_page.programs(reports),
            "operations.md": scaling_page.operations(reports),
            "wait-policy.md": scaling_page.policies(scaling_page.wait_policy()),
        }
        for name, text in threads.items():
            (folder / name).write_text(text, encoding="utf-8")
        return {file.stem: file.read_text(encoding="utf-8") for file in folder.glob("*.md")}


def filled(page: str, found: dict[str, str], numbers: dict[str, str]) -> str:
    """Return a page with its tables and numbers as they are made now."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- table: {match[1]} -->\n\n{found[match[1]].strip()}\n\n<!-- end -->\n"

    page = _TABLE.sub(table, page)
    return _NUMBER.sub(lambda match: f"<!-- ={match[1]} -->{numbers[match[1]]}<!-- = -->", page)


def pages() -> dict[Path, str]:
    """Return the pages that have tables or numbers, the README among them."""
    files = [HERE.parent / "README.md", *sorted(HERE.glob("*.md"))]
    files += sorted(HERE.glob("how-to/*.md"))
    found = {file: file.read_text(encoding="utf-8") for file in files}
    return {
        file: text for file, text in found.items() if _TABLE.search(text) or _NUMBER.search(text)
    }


def sources() -> dict[str, str]:
    """Return for each figure a digest of the files that it is drawn from: its description."""
    files = {
        "published.svg": [published_figure.RESULTS, Path(published.__file__).with_suffix(".toml")],
        "scaling.svg": scaling_page.files(),
        "density.svg": [density_figure.RESULTS],
    }
    return {
        name: sha256(b"".join(file.read_bytes() for file in each)).hexdigest()
        for name, each in files.items()
    }


def draw() -> None:
    """Draw the figures."""
    drawn = {
        "published.svg": published_figure.draw(),
        "scaling.svg": scaling_page.draw(scaling_page.read(scaling_page.files())),
        "density.svg": density_figure.draw(),
    }
    for name, digest in sources().items():
        told = {"Date": None, "Description": digest}
        drawn[name].savefig(FIGURES / name, facecolor="white", metadata=told, bbox_inches="tight")


if __name__ == "__main__":
    with rc_context(figures.STYLE):
        draw()
    found, numbers = made(), quantities.made()
    for file, text in pages().items():
        file.write_text(filled(text, found, numbers), encoding="utf-8")
