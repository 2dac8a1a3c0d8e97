"""Every name of gbdnn that a script, a notebook or a page imports or reads exists."""

import ast
import json
import pkgutil
import re
import types
from pathlib import Path

import pytest

import gbdnn
from gbdnn.errors import MissingPackageError

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "docs", "notebooks", "tests/stress", "tests/support", ".ci")
MADE = {"_build", "_generated", "made", "jupyter_execute", ".ipynb_checkpoints"}
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
INNER = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*"))]
KEPT = [file for file in INNER if file.suffix in {".py", ".md", ".ipynb"}]
FILES = [*sorted(ROOT.glob("*.md")), *(file for file in KEPT if not MADE & {*file.parts})]


def codes(file):
    """Return the blocks of code of a file that share their names."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".ipynb":
        cells = [each for each in json.loads(text)["cells"] if each["cell_type"] == "code"]
        some = ["".join(each["source"]) for each in cells]
        some += [each["metadata"].get("gbdnn", {}).get("small", "") for each in cells]
        return [re.sub(r"^\s*[%!].*$", "", "\n".join(some), flags=re.MULTILINE)]
    return BLOCK.findall(text) if file.suffix == ".md" else [text]


def names(code):
    """Yield the dotted names of gbdnn that code imports or reads."""
    nodes, known = [*ast.walk(ast.parse(code))], {}
    for node in nodes:
        for each in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            path = ".".join(filter(None, (getattr(node, "module", None), each.name)))
            if path.partition(".")[0] == "gbdnn":
                yield path
                is_top = isinstance(node, ast.Import) and not each.asname
                known |= {"gbdnn": "gbdnn"} if is_top else {each.asname or each.name: path}
    stored = [node for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store)]
    others = {getattr(node, "id", None) for node in stored}
    others |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    for node in (each for each in nodes if isinstance(each, ast.Attribute)):
        first, _, rest = ast.unparse(node).partition(".")
        if first in known.keys() - others and re.fullmatch(r"[\w.]+", rest):
            yield f"{known[first]}.{rest}"


def missing(code):
    """Return those that do not exist in a module."""
    found = []
    for name in {*names(code)}:
        known = gbdnn
        try:
            for each in name.split(".")[1:]:
                if isinstance(known, types.ModuleType):
                    known = pkgutil.resolve_name(f"{known.__name__}.{each}")
        except MissingPackageError:
            continue
        except (AttributeError, ImportError):
            found.append(name)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_names_exist(file):
    assert not [name for code in codes(file) for name in missing(code)]


@pytest.mark.parametrize(
    "code",
    [
        "from gbdnn.training import fssl", "import gbdnn\ngbdnn.grahp.infer", "import gbdnn.kernel",
        "from gbdnn import graph as g\ng.infr()",
    ],
)  # fmt: skip
def test_a_missing_name_is_found(code):
    assert missing(code)


def test_files_are_found():
    assert {file.suffix for file in FILES} == {".py", ".md", ".ipynb"}
    assert len(FILES) > 100
