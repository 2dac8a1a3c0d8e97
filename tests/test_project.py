"""What stands in several files of the project is the same in all."""

import re
import tomllib
from pathlib import Path

import pytest

import gbdnn

ROOT = Path(__file__).parent.parent


def text(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_one_version():
    cited = re.search(r"^version: (.*)$", text("CITATION.cff"), re.MULTILINE)[1]
    latest = re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)[1]
    assert cited == latest == gbdnn.__version__


def test_python_versions():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    named = {each.rsplit(" ", 1)[1] for each in project["classifiers"] if ":: 3." in each}
    tested = re.search(r"python: \[(.*)\]", text(".github/workflows/tests.yml"))[1]
    assert set(re.findall(r"[\d.]+", tested)) == named
    assert project["requires-python"] == f">={min(named)}"


@pytest.mark.parametrize("workflow", ["tests.yml", "checks.yml"])
def test_workflows_run_steps_that_there_are(workflow):
    script, found = text(".ci/run"), text(f".github/workflows/{workflow}")
    steps = re.search(r'^all="(.*)"$', script, re.MULTILINE)[1].split()
    assert all(re.search(rf"^{step}\(\) \{{$", script, re.MULTILINE) for step in steps)
    run = re.findall(r"\.ci/run (\w+)", found)
    run += re.search(r"step: \[(.*)\]", found)[1].split(", ")
    assert run
    assert set(run) <= set(steps)


def test_every_step_is_run_by_a_workflow():
    steps = re.search(r'^all="(.*)"$', text(".ci/run"), re.MULTILINE)[1].split()
    found = text(".github/workflows/tests.yml") + text(".github/workflows/checks.yml")
    assert all(re.search(rf"\b{step}\b", found) for step in steps)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_links_lead_to_files(page):
    linked = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(page))
    assert not [each for each in linked if not (ROOT / each).exists()]
