"""The index of a store: a JSON file with the place and meaning of all arrays, and a checksum.

``format``, ``version`` and ``checksum`` keep their meaning in all versions. The checksum is the
XXH3-64 of the file's bytes with its own 16 digits replaced by zeros.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

from gbdnn.errors import FormatError, MissingFileError
from gbdnn.io.reading import WRONG, read_bytes
from gbdnn.io.store.fingerprints import checksum

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "gbdnn.store"
VERSION = 1
INDEX = "index.json"

_ZEROS = b"0" * 16
_CHECKSUM = re.compile(rb'"checksum": "([0-9a-f]{16})"')


def encode(kind: str, shards: list[dict[str, Any]], content: dict[str, Any]) -> bytes:
    """Return the bytes of an index; `content` has the fields of its kind.

    Lists have one item per line; numbers are written so that they are read with the same bits.
    """
    fields = {
        "format": FORMAT, "version": VERSION, "checksum": _ZEROS.decode(), "kind": kind,
        "shards": shards, **content,
    }  # fmt: skip
    lines = ",\n".join(f"{json.dumps(name)}: {_text(value)}" for name, value in fields.items())
    data = f"{{\n{lines}\n}}\n".encode("ascii")
    digest = checksum(data).encode()
    return data.replace(b'"checksum": "' + _ZEROS, b'"checksum": "' + digest, 1)


def read_index(folder: Path) -> dict[str, Any]:
    """Return the fields of a folder's index; raise MissingFileError or FormatError.

    A ReadError says that the system does not let it be read.
    """
    path = folder / INDEX
    try:
        data = read_bytes(path)
    except MissingFileError as err:
        if os.path.isdir(folder):  # noqa: PTH112 -- Path.is_dir() raises for names too long
            raise MissingFileError(
                f"{folder}: no {INDEX}: no store, or one that was never finished; the index is"
                " written last"
            ) from err
        there = os.path.exists(folder)  # noqa: PTH110
        what = "is not a folder" if there else "there is no such folder"
        kind = FormatError if there else MissingFileError
        raise kind(f"{folder}: {what}; a store is a folder with {INDEX} and its shards") from err
    whole = _has_checksum(data)
    try:
        found = json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as err:
        raise FormatError(f"{path}: is damaged: no JSON: {err}") from err
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FormatError(
            f'{path}: is not the index of a store: it has to say "format": "{FORMAT}"'
            + ("" if whole else ", or is damaged")
        )
    version = found.get("version")
    if isinstance(version, int) and version > VERSION:
        raise FormatError(
            f"{path}: version {version} of the format; this gbdnn knows versions up to {VERSION}:"
            " upgrade gbdnn" + ("" if whole else " (or the index is damaged: wrong checksum)")
        )
    if not whole:
        raise FormatError(f"{path}: is damaged: its bytes do not have the checksum it names")
    if type(version) is not int or version < 1:
        raise FormatError(f"{path}: version {version!r} of the format; the first is 1")
    return found


def is_index(path: Path) -> bool:
    """Whether a file is the index of a store, of any version."""
    try:
        found = json.loads(read_bytes(path))
    except (RecursionError, *WRONG):
        return False
    return isinstance(found, dict) and found.get("format") == FORMAT


def content_checksum(index: dict[str, Any]) -> str:
    """Return a checksum of what a store holds, whatever its shards are called."""

    def nameless(item: Any) -> Any:
        return {**item, "shard": None} if isinstance(item, dict) else item

    fields = {
        name: list(map(nameless, value)) if isinstance(value, list) else value
        for name, value in index.items()
        if name not in ("checksum", "shards", "made_from")
    }
    return checksum(json.dumps(fields, sort_keys=True).encode())


def _text(value: Any) -> str:
    if not isinstance(value, list):
        return json.dumps(value, allow_nan=False)
    return "[\n" + ",\n".join(json.dumps(item, allow_nan=False) for item in value) + "\n]"


def _has_checksum(data: bytes) -> bool:
    found = _CHECKSUM.findall(data)
    if len(found) != 1:
        return False
    zeroed = _CHECKSUM.sub(b'"checksum": "' + _ZEROS + b'"', data)
    return checksum(zeroed).encode() == found[0]


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not a number")
