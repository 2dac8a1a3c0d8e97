"""The text of the project avoids some phrases that read as if translated."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Regular expressions, searched regardless of case and of line breaks.
PHRASES = r"""
layers: there is none
of which format\?
has no meaning here
--argmax beside --categories
bias= beside a Network
no values to be had
is to be had
will do where
nothing else is to be said
(?:medians?|rounds|calls|programs|runs?|measured|timed) (?:\w+ ){0,3}in turn\b
a function of arrays
what a node's neighbours have
(?:is|are|was|were) told\b
told (?:apart|before)
tells? (?:whether|how|what|that|of|the|which|where)\b
what goes on\b
gone on with
what there is\b
what is no\b
what has (?:no|none)\b
so many (?:inputs|bytes|edges|rows|neurons|threads|layers|entries)
of one's own
none of both
one of each
(?:are|is) at hand
the living (?:are|is)\b
beside (?:a|the|an|it|them|others?|one|each|PyTorch|MKL|PyTorch's)\b
""".splitlines()
ANY = "|".join(each.replace(" ", r"\s+") for each in PHRASES if each)
PATTERN = re.compile(rf"\b(?:{ANY})", re.IGNORECASE)


def texts():
    """Yield the name and the text of each file, and of each cell of a notebook."""
    for folder, kinds in (("gbdnn", {".py"}), ("docs", {".md", ".rst", ".toml", ".py"})):
        for file in sorted((ROOT / folder).rglob("*")):
            ours = not {"_build", "_generated", "made"} & set(file.relative_to(ROOT).parts)
            if file.suffix in kinds and ours:
                yield file.relative_to(ROOT).as_posix(), file.read_text(encoding="utf-8")
    for name in ("README.md", "CONTRIBUTING.md", "RELEASING.md", "benchmarks/README.md"):
        yield name, (ROOT / name).read_text(encoding="utf-8")
    for file in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for n, cell in enumerate(json.loads(file.read_text(encoding="utf-8"))["cells"]):
            yield f"{file.name}, cell {n}", "".join(cell["source"])


def found_in(text):
    """Return the phrases of a text, each with its line; comment signs do not separate words."""
    text = re.sub(r"(?<=\n)[ \t]*#:? ?", lambda match: " " * len(match[0]), text)
    return [
        f"line {text.count(chr(10), 0, match.start()) + 1}: {' '.join(match[0].split())}"
        for match in PATTERN.finditer(text)
    ]


def test_no_listed_phrase():
    found = [f"{name}, {each}" for name, text in texts() for each in found_in(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    ["It tells whether the sum\nis finite.", "# as many as are\n# at hand", "Beside a network"],
)
def test_a_phrase_is_found(text):
    assert len(found_in(text)) == 1
