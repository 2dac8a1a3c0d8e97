"""What a source distribution and a wheel contain: ``python .ci/contents.py dist/*``."""

import re
import sys
import tarfile
import zipfile
from pathlib import Path

# Of the source distribution, below its one folder.
SOURCE = [
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml",
    ".ci/run", "benchmarks/README.md", "docs/_static/beside.svg", "docs/conf.py", "docs/index.md",
    "docs/results.toml",
    "gbdnn/challenge/published.toml", "gbdnn/py.typed", "notebooks/first_inference.ipynb",
    "tests/support/oracles.py", "tests/test_inference.py",
]  # fmt: skip
WHEEL = [
    "gbdnn/__init__.py", "gbdnn/challenge/published.toml", "gbdnn/kernels/compiled/kernels.h",
    "gbdnn/py.typed",
]  # fmt: skip
LIBRARIES = {"x86_64": 4, "aarch64": 2, "arm64": 2}  # a level and a dtype each
# Made by runs, builds and tools.
MADE = re.compile(
    r"(^|/)(__pycache__|_build|_generated|\.[a-z]+_cache|\.hypothesis|\.ipynb_checkpoints|\.venv|"
    r"\.git|dist|results)(/|$)|\.py[co]$|\.nb[ic]$"
)


def names_in(file: Path) -> set[str]:
    """Return the names of the files in a distribution; in a source one, below its folder."""
    if file.suffix == ".whl":
        return set(zipfile.ZipFile(file).namelist())
    with tarfile.open(file) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def faults(file: Path) -> list[str]:
    """Return what is missing in a distribution, and what should not be there."""
    names = names_in(file)
    wheel = file.suffix == ".whl"
    missing = [f"no {name}" for name in (WHEEL if wheel else SOURCE) if name not in names]
    if wheel:
        wanted = next((n for kind, n in LIBRARIES.items() if file.stem.endswith(kind)), 0)
        found = sum(name.startswith("gbdnn/kernels/compiled/libraries/") for name in names)
        if found != wanted or not found:
            missing.append(f"{found} libraries of compiled kernels, expected {wanted}")
    extra = [f"{name} was made" for name in sorted(names) if MADE.search(name)]
    if wheel:
        own = ("gbdnn/", f"{'-'.join(file.name.split('-')[:2])}.dist-info/")
        extra += [f"{name} is not of the package" for name in names if not name.startswith(own)]
    return [f"{file.name}: {fault}" for fault in missing + extra]


if __name__ == "__main__":
    files = [Path(each) for each in sys.argv[1:]]
    if {file.suffix for file in files} != {".gz", ".whl"}:
        sys.exit("a source distribution and a wheel are needed")
    if found := [fault for file in files for fault in faults(file)]:
        sys.exit("\n".join(found))
