"""Tables and numbers in the pages are those of the files of results."""

import importlib
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# A number and its unit; "60,000 x 1024" and "1024 x 120" are sizes.
MEASURED = re.compile(
    r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e\d+)?\s?"
    r"(?:(?:s|ms|us|µs|ns|times|[KMG]i?B|kB|bytes|TeraEdges/s|GFMA/s|edges/s)(?!\w)"
    r"|(?:milli|micro|nano)?seconds?\b|minutes?\b|hours?\b|%|x(?!\s?\d|\w))"
)
# Of what a network is made of, not of what was measured.
SHARES = re.compile(r"(?:\d+ (?:to|and) )?\d+ %,? (?:of (?:the|its|their) edges|of each layer)")


@pytest.fixture(scope="module")
def docs():
    """Import a module of the folder docs/."""
    before, path = set(sys.modules), list(sys.path)
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(DOCS)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def inlined(docs):
    return docs("inlined")


@pytest.fixture(scope="module")
def numbers(docs):
    return docs("quantities").made()


@pytest.fixture(scope="module")
def facts(docs):
    return docs("quantities").FACTS


def bare(inlined, facts, text):
    """Numbers with a unit that no file of results stands behind, and that are no known fact."""
    prose = inlined.prose(text)
    for fact in facts:
        prose = prose.replace(fact, "")
    return MEASURED.findall(SHARES.sub("", prose))


def test_every_table_and_number_is_made_of_the_results(inlined, numbers):
    """Otherwise: python docs/inlined.py."""
    found, pages = inlined.made(), inlined.pages()
    named = {"results", "comparison", "training", "when-to-use", "scaling", "paper", "index"}
    assert {file.stem for file in pages} >= named | {"README"}
    other = [
        file.name for file, text in pages.items() if inlined.filled(text, found, numbers) != text
    ]
    assert not other
    shown = "".join(pages.values())
    assert not [name for name in found if f"<!-- table: {name} -->" not in shown]
    assert not [name for name in numbers if f"<!-- ={name} -->" not in shown]
    # A line that begins with a comment is no part of a paragraph.
    assert not re.findall(r"^(?:[-*] | {0,3})?<!-- =.*", shown, re.MULTILINE)


def test_every_figure_is_drawn_from_the_results(inlined):
    """Otherwise: python docs/inlined.py."""
    for name, digest in inlined.sources().items():
        assert digest in (inlined.FIGURES / name).read_text(encoding="utf-8"), name
        assert any(f"_static/{name}" in text for text in inlined.pages().values())


def test_another_number_is_seen(inlined, numbers):
    found = inlined.made()
    text = inlined.pages()[DOCS / "results.md"]
    for old, new in (("| 0.666 |", "| 0.566 |"), (">15.5 GiB<", ">16.5 GiB<")):
        assert old in text
        assert inlined.filled(text.replace(old, new), found, numbers) == text


def test_sentences_take_their_numbers_from_the_results(inlined, facts):
    """Otherwise: a name in docs/quantities.py, or a fact with its source there."""
    pages = inlined.pages()
    assert not {
        file.name: told for file, text in pages.items() if (told := bare(inlined, facts, text))
    }
    prose = "".join(map(inlined.prose, pages.values()))
    assert not [fact for fact in facts if fact not in prose]


@pytest.mark.parametrize(
    "sentence",
    [
        "It takes 2.4 ms.", "took 1.5 s, not", "3.3 times as fast", "1.8x faster", "2.0 x as fast",
        "9 GiB of memory", "noise of some 20 %", "in 21\nminutes", "1.16e12 edges/s", "(15 µs)",
        "by 12 bytes an edge", "| a case | 1.4 times |", "83.6 % of the weights",
    ],
)  # fmt: skip
def test_a_bare_number_is_seen(inlined, facts, sentence):
    assert len(bare(inlined, facts, sentence)) == 1
    assert not bare(inlined, facts, re.sub(r"\d[\d.e]*", "<!-- =name -->5 s<!-- = -->", sentence))


@pytest.mark.parametrize(
    "sentence",
    [
        "1024 neurons x 120 layers, 4096 x 480", "up to 10 % of the edges", "Python 3.11",
        "`2.4 ms`", "```sh\ntook 2.4 ms\n```\n", "32 edges", "in 2019 some", "[3](a/1.5s)",
    ],
)  # fmt: skip
def test_other_numbers_are_let_be(inlined, facts, sentence):
    assert not bare(inlined, facts, sentence)
