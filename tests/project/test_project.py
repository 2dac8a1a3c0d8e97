"""What stands in several files of the project is the same in all."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from imports import imported

import gbdnn

ROOT = Path(__file__).parents[2]


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version():
    cited = re.search(r"^version: (.*)$", text("CITATION.cff"), re.MULTILINE)[1]
    latest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)[1]
    assert cited == latest == gbdnn.__version__


def test_a_release_is_described_the_same_everywhere():
    zenodo = json.loads(text(".zenodo.json"))
    cited = yaml.safe_load(text("CITATION.cff"))
    project = tomllib.loads(text("pyproject.toml"))["project"]
    for name in ("title", "keywords", "license"):
        assert zenodo[name] == cited[name]
    assert zenodo["description"] == " ".join(cited["abstract"].split())
    assert zenodo["creators"] == cited["authors"] == project["authors"]


def test_a_release_is_checked_before_it_is_published():
    found = yaml.safe_load(text(".github/workflows/release.yml"))
    assert found["jobs"]["publish"]["needs"] == "build"
    steps = [each.get("run", "") for each in found["jobs"]["build"]["steps"]]
    assert any(".ci/run package" in each for each in steps)
    [line] = [each for each in steps if "_version.py" in each]
    for tag, code in ((f"v{gbdnn.__version__}", 0), ("v9.9.9", 1)):
        done = subprocess.run(
            ["bash", "-c", line], cwd=ROOT, env={**os.environ, "GITHUB_REF_NAME": tag},
            check=False,
        )  # fmt: skip
        assert done.returncode == code


def test_python_versions():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    named = {each.rsplit(" ", 1)[1] for each in project["classifiers"] if ":: 3." in each}
    tested = re.search(r"python: \[(.*)\]", text(".github/workflows/tests.yml"))[1]
    assert set(re.findall(r"[\d.]+", tested)) == named
    above = max(int(each.partition(".")[2]) for each in named) + 1
    assert project["requires-python"] == f">={min(named)},<3.{above}"


@pytest.mark.skipif(sys.platform == "darwin", reason="needs GNU's sed")
def test_the_change_for_the_next_python_graphblas_is_prepared(tmp_path):
    """The step newest lifts the bounds in a copy, which has no bound on SuiteSparse any more."""
    names = ("pyproject.toml", ".github/workflows/tests.yml")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text(name), encoding="utf-8")
    lift = re.search(r"^lift_bounds\(\) \{\n.*?^\}$", text(".ci/run"), re.DOTALL | re.MULTILINE)[0]
    subprocess.run(["bash", "-euc", f"{lift}\nlift_bounds"], cwd=tmp_path, check=True)
    lines = set()
    for name in names:
        old, new = text(name).splitlines(), (tmp_path / name).read_text().splitlines()
        lines |= {each.strip() for each in new if each not in old}
    assert {each.partition("  #")[0] for each in lines} == {
        'requires-python = ">=3.11,<3.15"', '"suitesparse-graphblas>=9.4",',
        '"Programming Language :: Python :: 3.14",', 'python: ["3.11", "3.12", "3.13", "3.14"]',
    }  # fmt: skip


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CHANGELOG.md"]
)
def test_links_lead_to_files(page):
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(page))
    assert not [each for each in linked if not (ROOT / each).exists()]


def test_two_commands_for_a_newcomer():
    """The first makes an environment and runs the challenge, the second the tests."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", text("README.md"), re.DOTALL | re.MULTILINE)
    first, second = "".join(blocks).splitlines()
    assert first.endswith("gbdnn challenge")
    assert second.endswith("pytest -n auto")


def test_calls_in_the_readmes_table_run():
    calls = re.findall(r"^\| `(gbdnn\.infer\(.*?\))`", text("README.md"), re.MULTILINE)
    assert len(calls) == 2
    for call in calls:
        assert eval(call, {"gbdnn": gbdnn, "net": [np.eye(3)], "X": np.eye(3)}).nvals == 3  # noqa: S307


# What is imported under another name than it is installed by, or comes with another package.
INSTALLED_BY = {
    "_cffi_backend": "cffi", "graphblas": "python-graphblas", "sklearn": "scikit-learn",
    "suitesparse_graphblas": "suitesparse-graphblas",
}  # fmt: skip


def packages():
    """The packages that each subpackage of gbdnn imports."""
    found = {}
    for path in (ROOT / "gbdnn").rglob("*.py"):
        names = {name.partition(".")[0] for name in imported(path)}
        names -= {*sys.stdlib_module_names, "gbdnn"}
        subpackage = path.relative_to(ROOT / "gbdnn").parts[0]
        found.setdefault(subpackage, set()).update(INSTALLED_BY.get(name, name) for name in names)
    return found


def test_what_is_imported_is_declared():
    """Where no extra is needed, by the dependencies themselves."""
    project = tomllib.loads(text("pyproject.toml"))["project"]
    extras = project["optional-dependencies"]

    def names(requirements):
        return {re.match(r"[\w-]+", each)[0] for each in requirements}

    core = names(project["dependencies"])
    every = core.union(*map(names, extras.values()))
    found = packages()
    for folder in ("arrays", "kernels", "engine"):
        assert found[folder] <= core | {"scipy"}, folder  # SciPy for types alone
    assert {"numpy", "python-graphblas"} <= found["kernels"] | found["arrays"]
    assert not {here: names - every for here, names in found.items() if names - every}
