"""Folders of numbered files, one per layer: ``n1024-l1.tsv``, ``n1024-l2.tsv.gz`` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbdnn.errors import ArgumentError, MissingFileError
from gbdnn.io.reading import read_errors

if TYPE_CHECKING:
    import re
    from pathlib import Path


def numbered(folder: Path, name: re.Pattern[str]) -> dict[str, dict[int, Path]]:
    """Return files by prefix and number, the groups in a pattern of their names.

    A plain file has precedence over one whose name has ``.gz`` after it.
    """
    with read_errors(folder):
        listing = sorted(folder.iterdir())
    found: dict[str, dict[int, Path]] = {}
    for path in listing:
        if match := name.fullmatch(path.name):
            first = found.setdefault(match[1], {}).setdefault(int(match[2]), path)
            if path.name not in (first.name, first.name + ".gz"):
                raise ArgumentError(f"{folder}: {first.name} and {path.name} have one number")
    return found


def in_order(files: dict[int, Path], numbers: range, prefix: str, ending: str) -> list[Path]:
    """Return the files of these numbers; prefix and ending are for the error if one is missing."""
    for k in numbers:
        if k not in files:
            last = files[max(files)]
            raise MissingFileError(
                f"{last.parent / f'{prefix}{k}{ending}'} is missing; the folder has {len(files)}"
                f" layers, the last of them {last.name}"
            )
    return [files[k] for k in numbers]
