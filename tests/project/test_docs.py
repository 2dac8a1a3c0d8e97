"""The pages' code runs and prints what they show; every public name has its place and docstring."""

import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import logging
import math
import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

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
    for page in sorted([*DOCS.glob("*.md"), *DOCS.glob("how-to/*.md")])
    # A format's specification shows code on files that are not there.
    if page.name != "store.md" and "```python" in page.read_text(encoding="utf-8")
]
MODULES = [
    "gbdnn",
    "gbdnn.io",
    "gbdnn.gallery",
    "gbdnn.graph",
    "gbdnn.challenge",
    "gbdnn.distributed",
    "gbdnn.training",
    "gbdnn.viz",
]
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.fixture(autouse=True)
def _logger():
    level = logging.getLogger("gbdnn.inference").level
    yield
    logging.getLogger("gbdnn.inference").setLevel(level)


@pytest.mark.frameworks
@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_page(page):
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


def without_numbers(text):
    """Text with a sign in place of every number, and one blank for several."""
    return re.sub(r" +", " ", re.sub(r"-?\d[\d,]*(\.\d+)?(e[+-]\d+)?", "#", text))


def test_there_are_pages():
    assert {"tutorial.md", "networks.md", "errors.md"} <= {page.name for page in PAGES}


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
    more = {"gbdnn": {"__version__", "images"} | with_torch, "gbdnn.gallery": {"images"}}
    assert set(dir(module)) == {*module.__all__, *rooms, *more.get(name, ())}
    assert all(hasattr(module, each) for each in dir(module))


def test_no_default_is_a_page_of_text():
    for _, name, thing in (each.values for each in public()):
        if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception)):
            for parameter in inspect.signature(thing).parameters.values():
                assert len(repr(parameter.default)) < 80, f"{name}({parameter.name}=)"


def is_record(kind):
    """Whether a class is a dataclass, or a named tuple."""
    made = getattr(kind, "__dataclass_params__", None)
    return (made is not None and made.init) or hasattr(kind, "_fields")


@pytest.mark.parametrize(("module", "name", "thing"), list(public()))
def test_public_name(module, name, thing):
    page = (DOCS / "api" / f"{module.removeprefix('gbdnn.')}.rst").read_text()
    assert re.search(rf"^   (~gbdnn\.)?{name}$", page, re.MULTILINE)  # in an autosummary
    assert f"currentmodule:: {module}\n" in page
    if not callable(thing):
        return
    doc = inspect.getdoc(thing)
    assert doc, "no docstring"
    sections = set(re.findall(r"^(\w+)\n-+$", doc, re.MULTILINE))
    if inspect.isclass(thing) and issubclass(thing, Exception):
        return
    if getattr(thing, "_is_protocol", False):
        return
    wanted = set(inspect.signature(thing).parameters)
    if inspect.isclass(thing) and is_record(thing):
        # A class says what its fields are, or each field does.
        wanted -= set(
            re.findall(r'^    (\w+): .*\n    """', inspect.getsource(thing), re.MULTILINE)
        )
        described = re.split("(?:Attributes|Parameters)\n", doc, maxsplit=1)[-1]
    else:
        described = doc.partition("Parameters\n")[2]
        assert not wanted or "Parameters" in sections
        if not inspect.isclass(thing):
            returns = inspect.signature(thing).return_annotation not in (None, "None")
            assert returns == bool(sections & {"Returns", "Yields"})
        if module == "gbdnn":
            assert "Examples" in sections
    heads = re.findall(r"^\**([\w, ]+?)(?: : .*)?$", described, re.MULTILINE)
    assert wanted <= {each for head in heads for each in head.split(", ")}


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("tables")
    sys.modules.pop("tables", None)


@pytest.mark.parametrize("group", ["zen3", "zen4"])
def test_results_tell_compressed_runs_apart(tables, group):
    """Each measured time and rate stands in the columns of its kind, every network has a row."""
    found = tomllib.loads((DOCS / "results.toml").read_text())
    head, _, *lines = tables.runs(found, group).splitlines()
    titles = [each.strip() for each in head.split("|")[1:-1]]
    assert titles.index("**effective** edges/s") == titles.index("equal inputs once, s") + 1
    rows = [[each.strip() for each in line.split("|")[1:-1]] for line in lines]
    assert {(int(row[0]), int(row[1])) for row in rows} == {
        (n, k) for n in tables.NEURONS for k in tables.LAYERS
    }
    own = [run for run in found["runs"] if run["setup"] == group]
    shown = [
        (int(row[0]), int(row[1]), float(row[at]), at == 5, row[8])
        for row in rows
        for at in (2, 5)
        if row[at] not in ("", "not measured")
    ]
    assert sorted(shown) == sorted(
        (run["neurons"], run["layers"], run["seconds"], run["compress"], run["of"]) for run in own
    )


def test_published_times_have_their_sources(tables):
    numbers = {int(number) for number in re.findall(r"^(\d+)\.", tables.sources(), re.MULTILINE)}
    shown = tables.published()
    assert {int(number) for number in re.findall(r"\[(\d+)\]", shown)} == numbers
    assert "| 385 / 1,540 / 6,200 |" in shown
    (line,) = (line for line in shown.splitlines() if "| 0.0134 / 0.0251 / 0.0725 |" in line)
    assert "SNICIT, **effective**" in line
    assert shown.count("**effective**") == 1


def test_programs_beside_each_other(tables):
    found = tomllib.loads((DOCS / "results.toml").read_text())
    groups = {each["group"] for each in found["beside"]}
    assert groups == {"zen3", "zen4"} | found["larger"].keys()
    text = "".join(tables.beside(found, group) for group in ("zen3", "zen4"))
    text += tables.larger(found)
    assert all(f"| {each['program']} | " in text for each in found["beside"])
    assert "| SciPy, CSR x CSR |  | 26.5 |" in text


def test_ratios_follow_from_the_seconds_beside_them(tables):
    found = tomllib.loads((DOCS / "results.toml").read_text())
    rows = [line.split(" | ") for line in tables.times(found, "zen3").splitlines()[2:]]
    seconds = [each for each in found["beside"] if each["group"] == "zen3"]
    assert len(rows) == len(seconds) > 4
    for row, each in zip(rows, seconds, strict=True):
        assert float(row[1]) == round(each["two"] / seconds[0]["two"], 1)
        assert float(row[2]) == round(each["two"] / seconds[1]["two"], 1)
    own = math.nan
    for line in tables.larger(found).splitlines()[2:]:
        *_, program, taken, ratio, _ = line.split("|")
        seconds = float(taken.split()[0])
        if program.strip() == "gbdnn, every input computed":
            own = seconds
        assert float(ratio) == pytest.approx(seconds / own, abs=0.06)


def test_programs_in_turn_become_lines_of_results(tables):
    runs = [
        {"program": "torch+drop", "nthreads": n, "round": turn, "seconds": n * each}
        for n in (1, 2)
        for turn, each in enumerate([9.0, 3.0, 1.2345, 2.0])  # the first prepares
    ]
    summary = [
        {"program": "torch+drop", "title": "", "nthreads": n, "seconds_median": n * 2.0}
        for n in (1, 2)
    ]
    text = tables.lines_beside(
        {"versions": {"torch": "2.13.0+cpu"}, "summary": summary, "runs": runs}
    )
    (line,) = tomllib.loads(f"lines = [\n{text}\n]")["lines"]
    assert line == {
        "group": "NAME", "program": "PyTorch 2.13.0, CSR x dense, dead inputs dropped",
        "one": 2.0, "one_range": [1.23, 3.0], "two": 4.0, "two_range": [2.47, 6.0],
    }  # fmt: skip
    shown = tables.beside({"beside": [line]}, "NAME")
    assert "dropped | 4.00 (2.47 to 6.00) | 2.00 (1.23 to 3.00) |" in shown


def test_picture_of_published_times(monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(DOCS)
    picture = importlib.import_module("published_figure")
    assert picture.SHOWN.keys() <= {each.system for each in picture.PUBLISHED}
    for axes in picture.draw().axes:
        names = [text for text in axes.texts if "\n" not in text.get_text()]
        heights = sorted(math.log10(text.get_position()[1]) for text in names)
        assert len(heights) > 7
        assert all(low + 0.28 < high for low, high in pairwise(heights))


@pytest.mark.parametrize("compress", [True, False])
def test_a_benchmarks_numbers_become_a_line_of_results(tables, tmp_path, compress):
    found = {
        "memory_needed": {},
        "memory_peak": 3 << 30,
        "streamed": False,
        "compress": compress,
        "problem": {"neurons": 4096, "layers": 480, "inputs": 60000, "seed": 0},
        "engine": "auto",
        "rounds": 3,
        "seconds": {"auto": [3.0, 1.0, 2.0]},
        "nthreads": 2,
    }
    first = found | {"rounds": 0, "seconds": {"auto": [3.0]}, "streamed": True}
    assert '"first run, streamed"' in tables.line_of(first)
    line = tables.line_of(json.loads(json.dumps(found))).replace("median of 3", "median of 9")
    results = (DOCS / "results.toml").read_text().replace("runs = [\n", f"runs = [\n{line}\n")
    named = tmp_path / "results.toml"
    named.write_text(results.replace('setup = "NAME"', 'setup = "zen3"'))
    tables.make(named, tmp_path)
    added = (tmp_path / "runs-zen3.md").read_text()
    own = "2.000 | 1.89e12 | 3.0"
    cells = f" |  |  | {own}" if compress else f"{own} |  |  | "
    assert f"| 4096 | 480 | {cells} | median of 9 |" in added
    named.write_text(results)
    with pytest.raises(ValueError, match="4096 x 480: unknown setup"):
        tables.make(named, tmp_path)


def test_measured_training_becomes_tables(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    training_tables = importlib.import_module("training_tables")
    circumstances = {
        "machine": {"processor": "P", "cores": 2, "system": "S"}, "versions": {"numpy": "2"},
    }  # fmt: skip
    cell = {
        "network": "8-4, 5 %", "nthreads": 2, "edges": 1234, "check": "PASSED", "floor": 1.0,
        "median": {"gbdnn": 0.001, "torch_csr": 0.0045, "torch_mask": 0.009},
    }  # fmt: skip
    steps = circumstances | {"cells": [cell]}
    row = {"density": 5.0, "rule": "rigl", "edges": 10, "accuracy": 98.1, "least": 98, "most": 98.2}
    row["seconds"] = 1.26
    accuracy = circumstances | {"rows": [row | {"seed": 0}, row | {"seed": 1}], "summary": [row]}
    row = {
        "strength": 2e-4, "seed": 0, "sizes": [436, 10], "gone": 87.25, "error_learned": 1.45,
        "error": 1.29,
    }  # fmt: skip
    structure = circumstances | {"rows": [row]}
    found = tomllib.loads(training_tables.toml_of(structure, steps, accuracy))
    shown = training_tables.tables_of(found)
    assert "| 8-4, 5 % | 1,234 | 1 | 9 | 4.5 | 4.5 |" in shown["steps"]
    assert "| 5 | 10 | RigL | 98.10 | 98.00 to 98.20 | 2 | 1.3 |" in shown["accuracy"]
    assert "| 0.0002 | 0 | 436-10 | 87.2 | 1.45 | 1.29 |" in shown["structure"]
    assert all("P, 2 cores, S" in text for text in shown.values())
    with pytest.raises(ValueError, match="FAILED"):
        training_tables.toml_of(circumstances | {"cells": [cell | {"check": "FAILED"}]})
    there = tomllib.loads((DOCS / "training.toml").read_text())
    assert training_tables.tables_of(there).keys() == {"steps", "accuracy", "structure"}


@pytest.fixture
def dense_tables(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("dense_tables")
    for name in ("dense_tables", "tables"):
        sys.modules.pop(name, None)


def test_real_networks_become_a_table(dense_tables):
    programs = {"infer": 2e-3, "compiled": 1e-3, "torch": 2e-4, "torch_csr": 3e-3}
    cell = {
        "network": "4-2, 5 %",
        "features_alone": False,
        "density": 0.05,
        "median": programs,
        "right": dict.fromkeys(programs),
        "wrong": [],
        "check": "PASSED",
    }
    cells = [cell | {"nthreads": n, "inputs": size} for n in (1, 2) for size in (1, 1000)]
    machine = {"processor": "P", "cores": 2, "system": "S"}
    found = {"machine": machine, "versions": {"numpy": "2"}, "cells": cells}
    text = dense_tables.toml_of(json.loads(json.dumps(found)))
    shown = dense_tables.real_networks(tomllib.loads(text))
    row = "| 4-2, 5 % | {} | 2 | 1 | 0.2 | 3 | **0.1** | **0.2** |"
    assert [shown.count(row.format(inputs)) for inputs in ("1", "1,000")] == [2, 2]
    # Whoever is faster counts, by however little.
    some = {"infer": 2.0, "compiled": 1.0, "torch": 4.0, "torch_csr": 5.0, "onnxruntime": 1.99}
    few = found | {"cells": [cell | {"nthreads": 2, "inputs": 1, "median": some}]}
    assert "| **1.0** | 2.0 |" in dense_tables.real_networks(
        tomllib.loads(dense_tables.toml_of(few))
    )
    assert "On 1 thread:" in shown
    # A wrong answer is not faster.
    few["cells"][0]["wrong"] = ["onnxruntime"]
    assert "| 4000 | 5000 | wrong | 2.0 | 4.0 |" in dense_tables.real_networks(
        tomllib.loads(dense_tables.toml_of(few))
    )
    cell["check"] = "FAILED"
    with pytest.raises(ValueError, match="4-2, 5 %, 1 inputs: FAILED"):
        dense_tables.toml_of(found | {"cells": [cell | {"nthreads": 1, "inputs": 1}]})


def test_pruned_modules_become_a_table(dense_tables, tmp_path):
    medians = {"gbdnn": 2e-3, "pytorch": 1e-3, "onnxruntime": 3e-3}
    p99 = {name: 2 * seconds for name, seconds in medians.items()}
    cell = {"name": "m", "zeros": 0.9, "tokens": 32, "median": medians, "p99": p99}
    machine = {"processor": "P", "cores": 2, "system": "S"}
    found = {"machine": machine, "versions": {"numpy": "2"}, "nthreads": 2, "cells": [cell]}
    (tmp_path / "a.toml").write_text(dense_tables.accelerate_toml_of(found))
    dense_tables.make_accelerate(tmp_path / "a.toml", tmp_path)
    shown = (tmp_path / "accelerate.md").read_text()
    assert "| m | 90 | 32 | 2 (4) | 1 (2) | 3 (6) | **0.5** |" in shown
    assert "P, 2 cores, S. numpy 2." in shown


def test_the_real_networks_of_the_page(dense_tables):
    found = tomllib.loads((DOCS / "real-networks.toml").read_text())
    shown = dense_tables.real_networks(found)
    assert found["command"] in shown
    assert all(f"| {cell['network']} |" in shown for cell in found["cells"])
