"""The tables and figures of the pages agree with the files of results.

If these tests fail, run ``python docs/tables.py`` or ``python docs/result_figures.py``.
"""

import importlib
import json
import re
import sys
import tomllib
from itertools import product
from pathlib import Path
from statistics import geometric_mean
from types import SimpleNamespace

import pytest

from gbdnn.kernels import costs

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def docs(monkeypatch):
    """Import a module of the folder docs/."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module
    for name in ("tables", "measured", "outdated", "result_figures"):
        sys.modules.pop(name, None)


def test_tables(docs):
    tables = docs("tables")
    found, pages = tables.made(), tables.pages()
    assert "README" in {file.stem for file in pages}
    assert not [file.name for file, text in pages.items() if tables.filled(text, found) != text]
    shown = "".join(pages.values())
    assert not [name for name in found if f"<!-- table: {name} -->" not in shown]


def test_figures(docs):
    figures = docs("result_figures")
    text = "".join(file.read_text(encoding="utf-8") for file in DOCS.glob("*.md"))
    for name in figures.SOURCES:
        assert figures.drawn_from(name) in (figures.FOLDER / name).read_text(encoding="utf-8")
        assert f"_static/{name}" in text


def test_files_of_results_are_printed_by_measured(docs):
    """Their keys are those that the tables read, for every kind."""
    assert {f"{kind}.toml" for kind in docs("measured").KINDS} == {
        file.name for file in DOCS.glob("*.toml")
    }


def test_all_files_of_results_are_measured_by_one_command(docs):
    outdated, kinds = docs("outdated"), {*docs("measured").KINDS, *docs("tables").reports()}
    larger = {"graph-16-cores", "threads-emerald-rapids"}  # of a larger machine
    assert {*outdated.ORDER} == kinds - larger
    for name in outdated.ORDER:
        for command in outdated.recorded(name)["command"].split("; "):
            script = next(word for word in command.split() if ".py" in word)
            assert (DOCS.parent / script).exists()


def test_a_file_of_results_is_written_by_its_commands(docs, tmp_path, monkeypatch):
    measure = docs("measure")
    command = "LEVEL=7 python script.py --rounds 2 $IMAGES; python script.py --rounds 3 x"
    (tmp_path / "docs").mkdir()
    (tmp_path / "script.py").write_text(
        "import json, os, sys\n"
        "*given, option, path = sys.argv[1:]\n"
        "cell = {'name': ' '.join([os.environ['LEVEL'], *given, option]), 'zeros': 0.5}\n"
        "found = {'machine': {'processor': 'P', 'cores': 2}, 'versions': {}, 'date': 'D',\n"
        "         'commit': 'C', 'load': 0.1,\n"
        "         'cells': [cell | {'tokens': 1, 'median': {'a': 1}}]}\n"
        "open(path, 'w').write(json.dumps(found))\n"
    )
    monkeypatch.delenv("IMAGES", raising=False)
    assert measure.missing(command) == ["IMAGES"]
    monkeypatch.setenv("IMAGES", "/SOME")
    monkeypatch.setenv("LEVEL", "1")
    monkeypatch.setattr(measure, "HERE", tmp_path / "docs")
    monkeypatch.setattr(docs("outdated"), "recorded", lambda _: {"command": command})
    measure.measure("accelerate")
    found = tomllib.loads((tmp_path / "docs/accelerate.toml").read_text())
    assert found["command"] == command
    assert [cell["model"] for cell in found["cells"]] == [
        "7 --rounds 2 /SOME --json", "1 --rounds 3 x --json",
    ]  # fmt: skip


def test_files_of_results_say_where_and_when(docs):
    """Below each table stand the processor, the date and the commit of its file."""
    tables = docs("tables")
    measured = {kind: tables.read(kind) for kind in docs("measured").KINDS}
    threads = {name: of for name, of in tables.reports().items() if name != "wait-policy"}
    shown = {name: (of, [name]) for name, of in measured.items()}
    shown |= {name: (of, ["scaling"]) for name, of in threads.items()}
    shown["wait-policy"] = tables.reports()["wait-policy"], ["wait-policy"]
    shown["side-by-side"][1].extend(["beside-readme", "beside-measured"])
    floor, _ = shown.pop("floor")  # a sentence
    found = tables.made()
    for facts, names in shown.values():
        assert all(facts[key] for key in ("processor", "versions", "date", "commit"))
        assert "load" in facts
        line = f"{facts['processor']}, {facts['date']}, commit {facts['commit']}"
        assert all(line in found[name] for name in names)
    text = " ".join((DOCS / "comparison.md").read_text(encoding="utf-8").split())
    assert f"{floor['date']}, commit {floor['commit']}" in text


def test_recorded_commands_have_no_paths_of_a_machine_and_their_scripts_exist():
    files = [*DOCS.glob("*.toml"), *DOCS.glob("scaling/*.json")]
    commands = [
        line for file in files for line in file.read_text(encoding="utf-8").splitlines()
        if re.match(r'\s*"?command"?\s*[:=]', line)
    ]  # fmt: skip
    assert len(commands) > 8
    assert not [each for each in commands if re.search(r"[ =]/", each.split("python", 1)[1])]
    pages = "".join(file.read_text(encoding="utf-8") for file in DOCS.rglob("*.md"))
    scripts = set(re.findall(r"\bbenchmarks/\w+/\w+\.py", " ".join([*commands, pages])))
    assert len(scripts) > 12
    assert not [each for each in scripts if not (DOCS.parent / each).exists()]


def test_recorded_processors_say_where_and_when():
    files = sorted((DOCS.parent / "benchmarks" / "limits" / "processors").glob("*.json"))
    assert files
    for file in files:
        found = json.loads(file.read_text(encoding="utf-8"))
        assert found.get("processor") or found["machine"]["processor"], file.name
        assert all(str(found[key]) for key in ("load", "date", "commit")), file.name


def test_reports_become_files_that_say_where_and_when(docs):
    measured, tables = docs("measured"), docs("tables")
    on = {"processor": "AMD EPYC", "cores": 2, "system": "Linux x86_64"}
    new = {"model": "family 26, model 2", "instructions": "AVX-512, AVX2"}
    report = {"versions": {"numpy": "2.0"}, "date": "2026-01-02", "command": "python x.py"}
    reports = [
        report | {"rows": [], "machine": on | new, "commit": "abc", "load": 0.25},
        report | {"rows": [], "machine": on | new, "commit": "def", "load": 1.5},
    ]
    found = tables.tomllib.loads(measured.toml("training-estimators", reports))
    wanted = "AMD EPYC (Zen 5; AVX-512, AVX2), 2 cores, 2026-01-02, commit abc, def, load 1.5"
    assert tables.line(found) == f"\n{wanted}.\n"
    assert found["command"] == "python x.py"
    assert measured.processor(on) == "AMD EPYC (generation not recorded), 2 cores"


def test_outdated_looks_at_code_that_exists(docs):
    outdated = docs("outdated")
    words = " ".join([outdated.EVERY, *outdated.MORE.values()]).split()
    assert not [each for each in words if not (DOCS.parent / "gbdnn" / each).exists()]


def test_commits_say_which_times_they_change(docs, monkeypatch):
    outdated, lines = docs("outdated"), "11 graph threads\n22\n"
    monkeypatch.setattr(outdated.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=lines))
    assert [outdated.later(name) for name in ("graph", "floor")] == [["11", "22"], ["22"]]


def test_numbers_in_sentences(docs):
    """What sentences say about a table follows from its file."""
    tables = docs("tables")
    real = tables.read("real-networks")

    def in_pages(text, *pages):
        for page in pages:
            words = (DOCS / f"{page}.md").read_text(encoding="utf-8").replace("**", "").split()
            assert text in " ".join(words), (page, text)

    def span(times):
        return f"{min(times):.1f} to {max(times):.1f} times"

    engines = tables.read("side-by-side")["cells"]
    rivals = [each for each in engines if not each["program"].startswith("`gbdnn")]
    best = min(rivals, key=lambda each: each["two"])
    name, times = best["program"].split(":")[0], f"{best['two'] / engines[0]['two']:.1f} times"
    in_pages(f"{times} as fast as {name}, the fastest other program on two threads", "comparison")
    in_pages(f"{times} ({name}", "when-to-use")
    in_pages(f"{name} is the strongest of the", "../README")
    one, two = (f"{cell['ratio']:.1f}" for cell in tables.read("floor")["cells"])
    in_pages(f"takes {one} times (one thread) and {two} times", "comparison")

    many = {1000, 10_000}
    groups = [(0, 0.101, many), (0, 0.101, {32}), (0, 0.101, {1}), (0.101, 0.41, many),
              (0.101, 0.41, {1, 32}), (0.41, 1, {1, 32})]  # fmt: skip
    means = []
    for group in groups:
        of = tables.speed_ups(*group)
        means.append(f"{geometric_mean(of):.1f} times")
        in_pages(f"{means[-1]} ({span(of)})", "when-to-use")
    dense = geometric_mean(tables.speed_ups(0.41, 1, many))
    in_pages(f"{dense:.1f} times with 1,000", "when-to-use")
    alone = [f"{geometric_mean(tables.speed_ups(*group, 1)):.1f}" for group in groups[:3]]
    in_pages("on one thread {}, {} and {} times".format(*alone), "../README", "when-to-use")
    pairs = [tables.ours_and_best(cell)[:2] for cell in real["cells"] if not cell["cold"]]
    cold = [tables.ours_and_best(x)[:2] for x in real["cells"] if x["cold"] and x["threads"] == 2]
    slow = f"then faster for {sum(best < own for own, best in cold)} of {len(cold)} networks"
    in_pages(f"{slow} on two threads", "when-to-use")
    lost = f"faster in {sum(best < own for own, best in pairs)} of {len(pairs)} measurements"
    in_pages(lost, "../README", "when-to-use")
    in_pages(f"{real['date']}, commit {real['commit']}", "../README")
    others = "PyTorch (dense and CSR), ONNX Runtime, OpenVINO, DeepSparse and LIBXSMM"
    in_pages(f"on average {means[0]} as fast as the fastest of {others}", "../README")
    in_pages(f"1,000 inputs or more, {means[1]} with 32, and {means[2]} with one", "../README")

    steps = span([tables.over_best(cell["ms"]) for cell in tables.read("training-steps")["cells"]])
    in_pages(steps, "training", "when-to-use")
    layers = [cell["ms"] for cell in tables.read("sparse-linear")["cells"]]
    others = [{k: t for k, t in ms.items() if "torch" in k or k == "sparselab"} for ms in layers]
    pairs = zip(others, layers, strict=True)
    gains = [min(ms.values()) / own["sparse_sequential"] for ms, own in pairs]
    in_pages(span(gains), "when-to-use")
    cells = [cell["s"] for cell in tables.read("graph")["cells"]]
    ratios = [tables.over_best(s) for s in cells]
    in_pages(f"gbdnn is {span(ratios)} as fast as the fastest other", "graph")
    in_pages(f"{geometric_mean(ratios):.1f} times ({span(ratios)})", "when-to-use")
    for name in ("pyg-csr", "pyg"):
        in_pages(span([s[name] / s["gbdnn"] for s in cells if name in s]), "graph")
    in_pages(f"take {costs.HAND_OVER / 1e6:.2f} ms on one thread", "architecture")
    products = [tables.over_best(cell["s"]) for cell in tables.read("spmm")["cells"]]
    in_pages(f"small matrices | {span(products)} |", "when-to-use")
    (many,) = tables.reports()["threads-emerald-rapids"]["networks"]
    fused = {r["threads"]: r["seconds"] for r in many["rows"] if r["program"] == "fused"}
    ratio, inputs = fused[1] / fused[16], f"{many['inputs']:,} inputs of 1024 x 120"
    in_pages(f"the fused kernel is {ratio:.1f} times as fast as on one, for {inputs}", "../README")
    waits = {
        (row["condition"], row["program"], row["policy"]): row["seconds"]
        for row in tables.reports()["wait-policy"]["rows"]
    }

    def waiting(policy, *programs, conditions=("quiet", "busy")):
        return sorted(
            waits[condition, program, policy] / waits[condition, program, "unset"]
            for condition in conditions
            for program in programs
        )

    (lagraph,) = waiting("passive", "LAGraph's calls from Python", conditions=("busy",))
    times = [
        each
        for policy in ("active", "passive")
        for each in waiting(policy, "sparse", "full", "fused")
    ]
    in_pages(f"take {lagraph:.2f} of the time under `passive`", "scaling")
    in_pages(f"depend on it ({min(times):.2f} to {max(times):.2f} of the time)", "scaling")
    rules = {(cell["density"], cell["rule"]): cell["accuracy"]
             for cell in tables.read("training-accuracy")["cells"]}  # fmt: skip
    lower = [f"{rules[100, 'fixed'] - rules[each]:.1f}"
             for each in ((10, "fixed"), (10, "rigl"), (1, "fixed"), (1, "rigl"))]  # fmt: skip
    in_pages("{} (fixed) or {} (RigL) percentage points lower".format(*lower), "training")
    in_pages("with 1 % {} or {}.".format(*lower[2:]), "training")
    scores = [f"{cell['mean']:.2f}" for cell in tables.read("training-estimators")["cells"]
              if cell["hidden"] == "default"]  # fmt: skip
    ours, theirs = scores[::2], scores[1::2]
    in_pages(f"R2 of {ours[0]} on diabetes and {ours[1]} on friedman1", "training")
    in_pages(f"{theirs[0]} and {theirs[1]}", "training")
    won = {
        (cell["model"], cell["zeros"], cell["inputs"])
        for cell in tables.read("accelerate")["cells"]
        if min(set(cell["ms"]) - {tables.BFLOAT16}, key=cell["ms"].get) == "gbdnn"
    }
    kinds = "feed-forward", "classifier"
    assert won == {*product(kinds, (0.8, 0.9, 0.95), (32, 128)), *product(kinds, (0.95,), (1,))}
    fastest = "the fastest for the feed-forward block and the classifier with 32 and 128 inputs"
    in_pages(f"{fastest}, and with one input if 95 % of", "how-to/accelerate")
    times = {(x["model"], x["zeros"], x["inputs"]): x["ms"]
             for x in tables.read("accelerate")["cells"]}  # fmt: skip
    for (model, zeros, inputs), ms in times.items():
        if model == "encoder of 6":
            assert ms["openvino"] < ms["gbdnn"]
            assert ms["gbdnn"] > 2 * 6 * times["feed-forward", zeros, inputs]["gbdnn"]
        elif inputs == 1 and zeros < 0.95:
            assert ms["onnxruntime"] == min(t for name, t in ms.items() if name != tables.BFLOAT16)
