"""The code of the pages runs; every public name has a docstring and is in the API pages."""

import contextlib
import importlib
import importlib.util
import inspect
import io
import logging
import re
import textwrap
from pathlib import Path

import graphblas as gb
import numpy as np
import pytest

import gbdnn

DOCS = Path(__file__).parents[2] / "docs"
# A block of Python, what it needs, and the block of text right below it: what it prints. That was
# printed once; where it says `varies`, numbers depend on machine, versions or threads.
BLOCK = re.compile(
    r"(?:<!-- needs: (?P<needs>\w+) -->\n)?```python\n(?P<code>.*?)^```$"
    r"(?:\n\n(?P<varies><!-- varies -->\n)?```text\n(?P<text>.*?)^```$)?",
    re.DOTALL | re.MULTILINE,
)
PAGES = [
    page
    for page in [
        DOCS.parent / "README.md", *sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("how-to/*.md")),
    ]
    # A format's specification shows code on files that are not there.
    if page.name != "store.md" and "```python" in page.read_text(encoding="utf-8")
]  # fmt: skip
MODULES = [
    "gbdnn", "gbdnn.errors", "gbdnn.io",
    "gbdnn.gallery", "gbdnn.graph", "gbdnn.challenge", "gbdnn.distributed",
    "gbdnn.training", "gbdnn.sklearn",
    "gbdnn.viz", "gbdnn.thread_scaling",
]  # fmt: skip
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(autouse=True)
def _logger():
    level = logging.getLogger("gbdnn.inference").level
    yield
    logging.getLogger("gbdnn.inference").setLevel(level)


@pytest.mark.frameworks
@pytest.mark.pages
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS.parent).as_posix())
def test_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("scipy")
    pytest.importorskip("sklearn")
    text, names = page.read_text(), {}
    for block in BLOCK.finditer(text):
        if block["needs"] and importlib.util.find_spec(block["needs"]) is None:
            continue
        line = text[: block.start("code")].count("\n")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * line + block["code"], str(page), "exec"), names)  # noqa: S102
        shown, found = block["text"] or "", printed.getvalue()
        if block["varies"]:
            shown, found = without_numbers(shown), without_numbers(found)
        assert shown == found, f"{page.name}, line {line + 1} prints\n{printed.getvalue()}"


def graphblas_on_pages():
    """Every block of a page that is GraphBLAS with given names, rather than a whole program."""
    for page in sorted(DOCS.rglob("*.md")):
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        for block in re.findall(r"(?:^    .*\n)+", text, re.MULTILINE):
            if "<<" in block:
                yield pytest.param(textwrap.dedent(block), id=f"{page.stem}: {block.split()[0]}")


BLOCKS = list(graphblas_on_pages())


def test_blocks_of_graphblas_are_found():
    assert len(BLOCKS) >= 2
    assert all("@" in block.values[0] for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_graphblas_on_pages_in_fp32(block):
    """A layer with one bias, as `infer` computes it; the full kernel starts with the bias."""
    b, clip, random = -0.3, 0.5, np.random.default_rng(0)
    features = random.random((20, 30), np.float32) * (random.random((20, 30)) < 0.3)
    weights = (random.random((30, 40), np.float32) - 0.4) * (random.random((30, 40)) < 0.2)
    expected = gbdnn.infer([weights], features, bias=b, clip=clip).to_dense(fill_value=0)
    assert 0 < (expected == 0).sum() < expected.size
    assert (expected == clip).any()
    Z = gb.Matrix.from_dense(np.full((20, 40), b, np.float32))
    names = {"np": np, "semiring": gb.semiring, "select": gb.select, "binary": gb.binary}
    both = (x.astype(np.float32) for x in (features, weights))
    Y, W = (gb.Matrix.from_dense(x, missing_value=0) for x in both)
    exec(block, names | {"Y": Y, "W": W, "Z": Z, "b": b, "clip": clip})  # noqa: S102
    found = Z.to_dense(fill_value=0)
    if "clip" not in block:
        found = found.clip(0, clip)
    else:
        assert Z.nvals == np.count_nonzero(expected)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def without_numbers(text):
    """Text with a sign in place of every number, and one blank for several."""
    return re.sub(r" +", " ", re.sub(r"-?\d[\d,]*(\.\d+)?(e[+-]\d+)?", "#", text))


def public():
    """Every name of the public modules, and what it is."""
    for name in MODULES:
        module = importlib.import_module(name)
        for each in module.__all__:
            yield pytest.param(name, each, getattr(module, each), id=f"{name}.{each}")


@pytest.mark.parametrize("name", MODULES)
def test_dir_shows_what_is_public(name):
    module = importlib.import_module(name)
    rooms = {each.split(".")[1] for each in MODULES if each.startswith(f"{name}.")}
    with_torch = {"torch"} if HAS_TORCH else set()
    more = {"gbdnn": {"__version__"} | with_torch}
    assert set(dir(module)) == {*module.__all__, *rooms, *more.get(name, ())}
    assert all(hasattr(module, each) for each in dir(module))


def test_the_names_of_gbdnn():
    """They are frozen, and no name is public in two places."""
    names = "infer plan infer_batches infer_to_store compile train Network Layer load save argmax"
    names += " categories GbdnnError scaling show_versions CompiledNetwork LayerInfo LayerStats"
    names += " Plan per_layer"
    assert sorted(importlib.import_module("gbdnn").__all__) == sorted(names.split())
    places = {}
    for module, name, thing in (each.values for each in public()):
        if callable(thing):
            places.setdefault(id(thing), []).append(f"{module}.{name}")
    assert not [each for each in places.values() if len(each) > 1]


@pytest.mark.parametrize("module", [*MODULES, "gbdnn.torch"])
def test_the_api_index_has_every_public_name(module):
    page = module.removeprefix("gbdnn.")
    index = (DOCS / "api" / "index.rst").read_text(encoding="utf-8")
    pages = re.findall(r'^PAGES \+?= "(.*)"', (DOCS / "conf.py").read_text(), re.MULTILINE)
    assert page in re.findall(r"^   (\w+)$", index, re.MULTILINE)
    assert page in " ".join(pages).split()
    file = importlib.util.find_spec(module).origin  # gbdnn.torch cannot be imported without PyTorch
    listed = re.search(r"^__all__ = (\[.*?\])", Path(file).read_text(), re.MULTILINE | re.DOTALL)[1]
    text = (DOCS / "api" / f"{page}.rst").read_text()
    assert f"currentmodule:: {module}\n" in text
    names = re.findall(r"^   (\w+)$", text, re.MULTILINE)
    assert sorted(re.findall(r'"(\w+)"', listed)) == sorted(names)


def is_record(kind):
    """Whether a class is a dataclass, or a named tuple."""
    made = getattr(kind, "__dataclass_params__", None)
    return (made is not None and made.init) or hasattr(kind, "_fields")


@pytest.mark.parametrize(("module", "name", "thing"), list(public()))
def test_public_name(module, name, thing):
    if not callable(thing):
        return
    doc = inspect.getdoc(thing) or ""
    assert ">>> " in doc or module == "gbdnn.thread_scaling", "no example"
    sections = set(re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE))
    is_class = inspect.isclass(thing)
    if getattr(thing, "_is_protocol", False) or (is_class and issubclass(thing, Exception)):
        return
    wanted = set(inspect.signature(thing).parameters)
    if is_class and is_record(thing):
        # A class says what its fields are, or each field does.
        source = inspect.getsource(thing)
        wanted -= {*re.findall(r'^    (\w+): .*\n    """', source, re.MULTILINE)}
        described = re.split("(?:Attributes|Parameters)\n", doc, maxsplit=1)[-1]
    else:
        described = doc.partition("Parameters\n")[2]
        assert not wanted or "Parameters" in sections
        if not is_class:
            returns = inspect.signature(thing).return_annotation not in (None, "None")
            assert returns == bool(sections & {"Returns", "Yields"})
    heads = re.findall(r"^\**([\w, ]+?)(?: : .*)?$", described, re.MULTILINE)
    assert wanted <= {each for head in heads for each in head.split(", ")}
