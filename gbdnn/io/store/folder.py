"""The folder of a store: shards, a JSON index, and a lock against concurrent writers.

    index.json                       content of the store; replaced last
    shard-<token>-00000.safetensors  arrays
    gbdnn-run.json, part-*.json      an incomplete result (`gbdnn.io.store.parts`)

New shards have new names. When all of them are on the disk, the index is replaced by a rename, and
shards that it does not name are removed. So a reader sees either the old store or the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_flag, as_path
from gbdnn.errors import FormatError, MissingFileError, OutputError
from gbdnn.io.formats import require_folder_name
from gbdnn.io.reading import read_bytes
from gbdnn.io.store.fingerprints import checksum
from gbdnn.io.store.shards import SHARD_NAME, ShardReader, ShardWriter, require_packages
from gbdnn.io.writing import (
    existing,
    is_standard_output,
    output_errors,
    require_writable,
    whole_file,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "INDEX", "RUN", "Address", "Reader", "finish", "read_json",
    "require_free", "tidy", "unfinished", "write_json", "writing",
]  # fmt: skip

INDEX, RUN = "index.json", "gbdnn-run.json"
_FORMAT, _VERSION = "gbdnn.store", 2
_OURS = re.compile(  # names that nobody else chooses
    rf"{SHARD_NAME.pattern}|part-[0-9a-f]{{16}}-\d+-\d+\.json"
    r"|gbdnn-run\.json|\.gbdnn-[0-9a-f]{16}\.tmp"
)


_REMEDIES = {
    "network": "use gbdnn.load",
    "features": "use gbdnn.io.open_features or read_features",
}


@contextlib.contextmanager
def writing(
    path: str | os.PathLike[str], *, replace: bool, resumes: bool = False
) -> Iterator[ShardWriter]:
    """Lock a folder and write shards to it; an existing store is unchanged until `finish`.

    `path` is a new or empty folder or, with `replace`, a store; `resumes` says whether to accept
    the parts of an unfinished run. Raise OutputError if the folder cannot be written, contains
    other files, or another process is writing to it, and ArgumentError if a new name has the
    suffix of a file.
    """
    as_flag(replace, "replace")
    folder, is_new, lock = as_path(path).absolute(), False, -1
    require_folder_name(as_path(path))
    require_packages()
    try:
        with output_errors(folder):
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
            lock = _locked(folder)
            _require_ours(folder)
            if (folder / INDEX).is_symlink():  # as in the cache of the Hugging Face Hub
                raise OutputError(f"{folder}: {INDEX} is a link; choose another folder")
            if (folder / INDEX).exists() and not replace:
                raise existing(path)
            if (folder / RUN).exists() and not resumes:
                raise OutputError(
                    f"{folder}: the folder contains parts of an unfinished infer_to_store; choose"
                    " another folder or delete it"
                )
        try:
            yield ShardWriter(folder)
        finally:
            tidy(folder)
    finally:
        if lock >= 0:
            os.close(lock)
        if is_new:
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()


def require_free(path: Path, *, stored: bool, replace: bool, resumes: bool = False) -> None:
    """Raise the OutputError of writing a store or a file, before the content is computed.

    With `resumes`, the folder of a store may contain the parts of an unfinished run.
    """
    if not stored:
        require_writable(path, replace=replace)
        return
    if is_standard_output(path):
        raise OutputError("a store is a folder; it cannot be written to standard output")
    with writing(path, replace=replace, resumes=resumes):
        pass


def finish(writer: ShardWriter, kind: str, content: dict[str, Any]) -> None:
    """Write the last shard and the index, which completes the store."""
    writer.flush()
    with output_errors(writer.folder):
        write_json(writer.folder / INDEX, {"kind": kind, "shards": writer.shards, **content})


def tidy(folder: Path) -> None:
    """Remove gbdnn's files that do not belong to a store or an unfinished run in the folder."""
    with contextlib.suppress(OSError, LookupError, TypeError, ValueError):
        if (folder / RUN).exists() and any(folder.glob("part-*.json")):
            return
        kept = {INDEX}
        if (folder / INDEX).exists():
            index = json.loads((folder / INDEX).read_bytes())
            kept.update(shard["file"] for shard in index["shards"])
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name) and path.name not in kept:
                path.unlink(missing_ok=True)


def unfinished(folder: Path) -> str:
    """Describe the unfinished run in a folder, or return an empty string."""
    try:
        total = read_json(folder / RUN)["starts"][-1]
    except (MissingFileError, LookupError, ValueError):
        return ""
    bounds = (path.stem.split("-")[-2:] for path in folder.glob("part-*.json"))
    done = sum(int(stop) - int(start) for start, stop in bounds)
    return f"unfinished: {done:,} of {total:,} inputs; repeat the call of infer_to_store"


def _require_ours(folder: Path) -> None:
    """Raise OutputError if the folder is neither empty nor a store."""
    if (folder / INDEX).exists():
        with contextlib.suppress(ValueError, TypeError, KeyError):
            if json.loads((folder / INDEX).read_bytes())["format"] == _FORMAT:
                return
    elif all(_OURS.fullmatch(path.name) for path in folder.iterdir()):
        return
    raise OutputError(f"{folder}: the folder is not empty and not a store; choose another folder")


@dataclass(frozen=True, slots=True)
class Address:
    """The information with which another process can open the same store."""

    path: str
    checksum: str
    verify: bool

    def reader(self) -> Reader:
        """Open the store; raise a FormatError if it has changed."""
        reader = Reader(self.path, verify=self.verify)
        if reader.address != self:
            raise FormatError(
                f"{self.path}: the store has changed since it was opened; load it again"
            )
        return reader

    def content(self) -> str:
        """Return the hash of the content, independent of the names of shards."""
        index = self.reader().index
        named = {"shards": [shard["xxh3_64"] for shard in index["shards"]]}
        return checksum(json.dumps({**index, **named, "xxh3_64": "", "run": None}).encode())


class Reader:
    """An opened store, with its `path`, `index` and `shards`.

    `verify` says whether to verify the checksum of each shard when it is first read.
    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = True) -> None:
        require_packages()
        self.path, self._verify = as_path(path).absolute(), as_flag(verify, "verify")
        try:
            self.index = read_json(self.path / INDEX)
        except MissingFileError as err:
            what = f"not a complete store; the file {INDEX} is missing, which is written last"
            raise MissingFileError(f"{self.path}: {unfinished(self.path) or what}") from err
        self.shards = ShardReader(self.path, self.index["shards"], verify=self._verify)

    @property
    def kind(self) -> str:
        """``"network"`` or ``"features"``."""
        return str(self.index["kind"])

    def require(self, kind: str) -> None:
        """Raise FormatError if the store contains something else."""
        if self.kind != kind:
            remedy = _REMEDIES.get(self.kind, "it was written by another version of gbdnn")
            raise FormatError(f"{self.path}: the store contains {self.kind}, not {kind}; {remedy}")

    @property
    def address(self) -> Address:
        """The information with which another process can open this store."""
        return Address(str(self.path), self.index["xxh3_64"], self._verify)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a JSON file with a checksum of its content."""
    content = {"format": _FORMAT, "version": _VERSION, **content}
    content["xxh3_64"] = checksum(json.dumps(content).encode())
    with whole_file(path) as file:
        file.write(json.dumps(content).encode())


def read_json(path: Path) -> dict[str, Any]:
    """Return the content of a file of `write_json`, or raise MissingFileError or FormatError."""
    try:
        record = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as err:
        raise FormatError(f"{path}: the file is damaged: {err}") from err
    if not isinstance(record, dict) or record.get("format") != _FORMAT:
        raise FormatError(f"{path}: not a file of a gbdnn store")
    if record.get("version") != _VERSION:
        raise FormatError(
            f"{path}: unsupported version {record.get('version')} of the format; this gbdnn reads"
            f" version {_VERSION}"
        )
    told = record.pop("xxh3_64", None)
    if told != checksum(json.dumps(record).encode()):
        raise FormatError(f"{path}: the file is damaged: its checksum differs")
    return {**record, "xxh3_64": told}


def _locked(folder: Path) -> int:
    """Return a descriptor of a folder, locked exclusively if the system supports it."""
    try:
        import fcntl
    except ImportError:  # on Windows, where a folder cannot be opened either
        return os.open(os.devnull, os.O_RDONLY)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise OutputError(f"{folder}: another process is writing to this store") from None
    except OSError:
        return descriptor
    return descriptor
