"""What stands in several files of the project is the same in all."""

import json
import re
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


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "CHANGELOG.md"]
)
def test_links_lead_to_files(page):
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(page))
    assert not [each for each in linked if not (ROOT / each).exists()]


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
