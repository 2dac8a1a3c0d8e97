"""What the source distribution and the wheels of a release contain: ``contents.py dist/*``.

Without arguments, the script prints the platforms that have a wheel.
"""

import os
import re
import runpy
import sys
import tarfile
import zipfile
from pathlib import Path

# Of the source distribution, below its one folder.
SOURCE = [
    "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "pyproject.toml",
    ".ci/run", "benchmarks/README.md", "docs/_static/beside.svg", "docs/conf.py", "docs/index.md",
    "docs/challenge.toml",
    "benchmarks/published.toml", "gbdnn/py.typed", "notebooks/first_inference.ipynb",
    "tests/support/oracles.py", "tests/test_inference.py",
]  # fmt: skip
WHEEL = [
    "gbdnn/__init__.py", "gbdnn/kernels/compiled/shared.h",
    "gbdnn/py.typed",
]  # fmt: skip
COMPILED = "gbdnn/kernels/compiled"
BUILD = runpy.run_path(str(Path(__file__).parents[1] / COMPILED / "build.py"))
# Made by runs, builds and tools.
MADE = re.compile(
    r"(^|/)(__pycache__|_build|_generated|\.[a-z]+_cache|\.hypothesis|\.ipynb_checkpoints|\.venv|"
    r"\.git|dist|libraries|results)(/|$)|\.py[co]$"
)


def names_in(file: Path) -> set[str]:
    """Return the names of the files in a distribution; in a source one, below its folder."""
    if file.suffix == ".whl":
        return set(zipfile.ZipFile(file).namelist())
    with tarfile.open(file) as archive:
        return {name.partition("/")[2] for name in archive.getnames()}


def platform_of(file: Path) -> str:
    """Return the last tag of a wheel."""
    return file.stem.rpartition("-")[2] if file.suffix == ".whl" else ""


def libraries(platform: str) -> set[str]:
    """Return the names of a platform's compiled kernels and declarations, with their hashes."""
    folder = Path(__file__).parents[1] / COMPILED / "libraries"
    names = {BUILD["declarations"](folder, dtype).name for dtype in BUILD["DTYPES"]} | {
        BUILD["file_name"](level, dtype)
        for level in BUILD["PLATFORMS"][platform].values()
        for dtype in BUILD["DTYPES"]
    }
    return {f"{COMPILED}/libraries/{name}" for name in names}


def faults(file: Path) -> list[str]:
    """Return what is missing in a distribution, and what should not be there."""
    names = names_in(file)
    wheel = file.suffix == ".whl"
    wanted = {*WHEEL, *libraries(platform_of(file))} if wheel else {*SOURCE}
    missing = [f"no {name}" for name in sorted(wanted - names)]
    extra = [f"{name} was made" for name in sorted(names - wanted) if MADE.search(name)]
    if wheel:
        own = ("gbdnn/", f"{'-'.join(file.name.split('-')[:2])}.dist-info/")
        extra += [f"{name} is not of the package" for name in names if not name.startswith(own)]
    return [f"{file.name}: {fault}" for fault in missing + extra]


if __name__ == "__main__":
    files = [Path(each) for each in sys.argv[1:]]
    # A release, whose folder is DIST, also has the wheel for Windows, which takes a minute.
    tags = [tag for tag in BUILD["PLATFORMS"] if tag != "win_amd64" or os.environ.get("DIST")]
    if not files:
        print(*tags)  # noqa: T201 -- for .ci/run
        sys.exit()
    if sorted(map(platform_of, files)) != sorted(["", *tags]):
        sys.exit(f"not a source distribution and a wheel for each of {tags}")
    if found := [fault for file in files for fault in faults(file)]:
        sys.exit("\n".join(found))
