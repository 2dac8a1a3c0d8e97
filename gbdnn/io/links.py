"""Paths without symbolic links, for writers that replace what a link leads to.

Where everybody may make files (``/tmp``), anybody may make a link that leads a writer to a file of
the writer's own. The kernel follows none of another user there (``fs.protected_symlinks``), but who
resolves a path and renames a file onto the result goes around that: here the same rule is kept.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

__all__ = ["resolved"]

_MOST_LINKS = 40  # as in Linux


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return an absolute path without symbolic links; what it leads to need not exist.

    Raises
    ------
    OSError
        A link of another user in a folder with the sticky bit that everybody may write to; links
        that lead to each other; a folder on the way that cannot be entered.
    """
    anchor, *parts = Path(path).absolute().parts
    at, links = Path(anchor), 0
    parts.reverse()
    while parts:
        part = parts.pop()
        if part == "..":
            at = at.parent
            continue
        here = at / part
        try:
            found = here.lstat()
        except FileNotFoundError:
            at = here
            continue
        if not stat.S_ISLNK(found.st_mode):
            at = here
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        _require_trusted(here, found)
        target = here.readlink()
        if target.is_absolute():
            at = Path(target.anchor)
        parts += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    return at


def _require_trusted(link: Path, found: os.stat_result) -> None:
    """Raise a PermissionError for a link that anybody but its folder's owner may have made."""
    folder, open_to_all = link.parent.stat(), stat.S_ISVTX | stat.S_IWOTH
    if folder.st_mode & open_to_all != open_to_all:
        return
    if found.st_uid not in (os.geteuid(), folder.st_uid):
        reason = f"{link} is a symbolic link of another user in a folder that all may write to"
        raise PermissionError(errno.EACCES, reason)
