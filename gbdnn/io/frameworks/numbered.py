"""Folders of numbered Matrix Market files: ``n1024-l1.mtx``, ``n1024-l2.mtx.gz`` and so on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gbdnn.errors import ArgumentError, MissingFileError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["by_prefix", "layer_files"]


def layer_files(folder: Path, prefix: str | None) -> list[Path]:
    """Return the files of the one network in `folder`, in the order of their numbers."""
    found = by_prefix(folder)
    if prefix is not None:
        found = {prefix: found[prefix]} if prefix in found else {}
    if not found:
        expected = f"{'<prefix>' if prefix is None else prefix}<number>.mtx"
        raise MissingFileError(f"{folder}: no layers; expected files {expected}")
    if len(found) > 1:
        raise ArgumentError(
            f"{folder}: numbered files of {len(found)} kinds; prefix= says which: "
            + ", ".join(repr(name) for name in sorted(found))
        )
    [(name, files)] = found.items()
    for k in range(0 if 0 in files else 1, max(files) + 1):
        if k not in files:
            raise MissingFileError(
                f"{folder / f'{name}{k}.mtx'} is missing; the folder has {len(files)} layers, the"
                f" last of them {files[max(files)].name}"
            )
    return [files[k] for k in sorted(files)]


def by_prefix(folder: Path) -> dict[str, dict[int, Path]]:
    """Return the numbered files by prefix and number; a plain file has precedence over a .gz."""
    try:
        listing = sorted(folder.iterdir())
    except (OSError, ValueError) as err:
        reason = getattr(err, "strerror", None) or err
        raise MissingFileError(f"{folder}: cannot be listed: {reason}") from err
    found: dict[str, dict[int, Path]] = {}
    for path in listing:
        if match := re.fullmatch(r"(.*?)([0-9]+)\.mtx(\.gz)?", path.name, re.DOTALL):
            first = found.setdefault(match[1], {}).setdefault(int(match[2]), path)
            if path.name not in (first.name, first.name + ".gz"):
                raise ArgumentError(f"{folder}: {first.name} and {path.name} have one number")
    return found
