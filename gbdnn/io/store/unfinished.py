"""What an unfinished store holds: a record of the run beside its shards or parts.

    Y/.gbdnn-<key>.tmp/run.json             which run it is, and the layers of complete shards
    Y/.gbdnn-<key>.tmp/shard-...            layers of a network
    Y/.gbdnn-<key>.tmp/part-<start>-<stop>/ a complete part of an answer: a store of its own
    Y/.gbdnn-<key>.tmp/part-....run/        a part in the making: activations between two layers

The key is a checksum of the run's fingerprints: of all that the content follows from. No reader of
stores looks into the folder, and ``index.json`` is not there before the end.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gbdnn._version import __version__
from gbdnn.arrays.checks import as_path
from gbdnn.errors import FormatError, GbdnnError, MissingFileError, OutputError
from gbdnn.io.files import output_errors, whole_file
from gbdnn.io.reading import WRONG, read_bytes, read_errors
from gbdnn.io.store.fingerprints import checksum
from gbdnn.io.store.index import read_index
from gbdnn.io.store.schema import require_record

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from pathlib import Path

__all__ = [
    "RUN",
    "Origin",
    "Unfinished",
    "bring_back",
    "find_unfinished",
    "finished_key",
    "named_by_index",
    "part_name",
    "read_run",
    "require_same_run",
    "run_folder",
    "write_run",
]

RUN = "run.json"
_FORMAT, _VERSION = "gbdnn.unfinished", 1
_FOLDER = re.compile(r"\.gbdnn-[0-9a-f]{16}\.tmp")


@dataclass(frozen=True)
class Origin:
    """All that a store's content follows from.

    Attributes
    ----------
    fingerprints : dict of str to str
        Of the network, the features, each option that matters.
    words : dict of str to str
        Where they are, for people; a run is the same whatever they say.
    """

    fingerprints: dict[str, str]
    words: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, fingerprints: dict[str, str], words: dict[str, str] | None = None) -> Origin:
        """Return an origin of these fingerprints and this version of gbdnn."""
        return cls({**fingerprints, "version": __version__}, words or {})

    @property
    def key(self) -> str:
        """A checksum of the fingerprints, of 16 hexadecimal digits."""
        return checksum(json.dumps(self.fingerprints, sort_keys=True).encode())

    def difference(self, other: Origin) -> str:
        """Return what differs in another run: ``"engine: auto, here full"``."""
        found = []
        for name in {**self.fingerprints, **other.fingerprints}:
            there, here = other.fingerprints.get(name), self.fingerprints.get(name)
            if there != here:
                old, new = other.words.get(name, there), self.words.get(name, here)
                now = "here with another content" if old == new else f"here {new}"
                found.append(f"{name}: {old}, {now}")
        return "; ".join(found) or "its record is of another kind"


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """What a store that is not complete holds; `find_unfinished` returns it.

    Attributes
    ----------
    kind : str
        ``"features"`` (an answer) or ``"network"``.
    done, total : int
        Inputs of complete parts, or layers of complete shards; inputs or layers in all.
    parts_done, parts : int
        The same in parts; 0 for a network.
    layer, layers : int, optional
        Where a network is streamed: the first part in the making goes on at this layer, of so many.
    nbytes : int
        What is kept, in bytes.
    origin : Origin
        What it follows from.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np, gbdnn
    >>> folder = Path(tempfile.mkdtemp())
    >>> def stop(done, inputs):
    ...     if done:
    ...         raise KeyboardInterrupt
    >>> try:
    ...     gbdnn.infer_to_store([np.eye(3)], np.ones((6, 3)), folder / "Y", batch=2, progress=stop)
    ... except KeyboardInterrupt:
    ...     found = gbdnn.io.find_unfinished(folder / "Y")
    ...     print(found.kind, found.done, "of", found.total)  # the same call goes on from here
    features 2 of 6
    """

    kind: str
    done: int
    total: int
    parts_done: int
    parts: int
    layer: int | None
    layers: int | None
    nbytes: int
    origin: Origin

    @property
    def what(self) -> str:
        """What is counted: ``"inputs"`` or ``"layers"``."""
        return "layers" if self.kind == "network" else "inputs"

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to go on with."""
        return not self.done and self.layer is None


def find_unfinished(path: str | os.PathLike[str]) -> Unfinished | None:
    """Return what an unfinished store in a folder holds.

    Parameters
    ----------
    path : path-like
        The folder that was given to `gbdnn.infer_to_store`, ``gbdnn infer -o``, ``gbdnn generate``
        or ``gbdnn convert``. It is only read, and may be written to by a running process.

    Returns
    -------
    Unfinished, or None
        None if nothing unfinished is there, or nothing that could be resumed. Of several runs
        the one that is furthest.

    Raises
    ------
    ReadError
        The system does not let it be read.

    Examples
    --------
    >>> import tempfile, gbdnn
    >>> gbdnn.io.find_unfinished(tempfile.mkdtemp()) is None
    True
    """
    found = [each for folder in _folders(as_path(path)) if (each := _look(folder)) is not None]
    return max(found, key=lambda each: (each.done / max(1, each.total), each.nbytes), default=None)


def run_folder(path: Path, key: str) -> Path:
    """Return where the run with this key keeps what is complete."""
    return path / f".gbdnn-{key}.tmp"


def part_name(start: int, stop: int) -> str:
    """Return the name of the folder of a part with rows `start` to before `stop`."""
    return f"part-{start:09}-{stop:09}"


def write_run(folder: Path, origin: Origin, fields: dict[str, Any]) -> None:
    """Write the record of a run, atomically."""
    run = {"fingerprints": origin.fingerprints, "words": origin.words, **fields}
    text = json.dumps(run, allow_nan=False)
    head = {"format": _FORMAT, "version": _VERSION, "checksum": checksum(text.encode())}
    with whole_file(folder / RUN) as file:
        file.write(f"{json.dumps(head)}\n{text}\n".encode("ascii"))


def read_run(folder: Path) -> tuple[Origin, dict[str, Any]]:
    """Return the origin and the fields of a run's record.

    Raises
    ------
    MissingFileError, FormatError
        There is none, or it is damaged.
    ReadError
        The system does not let it be read.
    """
    path = folder / RUN
    head, _, text = read_bytes(path).partition(b"\n")
    text = text.removesuffix(b"\n")
    try:
        first = json.loads(head)
        if first["format"] != _FORMAT or first["version"] != _VERSION:
            raise FormatError(f"{path}: is not the record of a run, or of another version")
        if first["checksum"] != checksum(text):
            raise FormatError(f"{path}: is damaged: its bytes do not have the checksum it names")
        run = json.loads(text)
        require_record(run, path)
        origin = Origin(run.pop("fingerprints"), run.pop("words"))
        if folder.name != run_folder(folder, origin.key).name:
            raise FormatError(f"{path}: is the record of another run")
        return origin, run
    except (ValueError, LookupError, TypeError, RecursionError) as err:
        if isinstance(err, GbdnnError):
            raise
        raise FormatError(f"{path}: is damaged: {type(err).__name__}: {err}") from err


def require_same_run(path: Path, origin: Origin | None, *, restart: bool) -> None:
    """Raise OutputError if a folder holds what another run has completed; with `restart` remove it.

    Of the run itself all is removed too, with `restart`. Without an origin every run is another.
    """
    for folder in _folders(path):
        if restart:
            shutil.rmtree(folder, ignore_errors=True)
            continue
        is_same = origin is not None and folder == run_folder(path, origin.key)
        if is_same or (found := _look(folder)) is None:
            continue
        other, way = "an unfinished run", f"removing {folder}"
        if origin is not None:
            other = f"another run ({origin.difference(found.origin)})"
            way = "restart=True (in the shell --restart)"
        raise OutputError(
            f"{path}: holds {found.done:,} of {found.total:,} {found.what} of {other}. That run can"
            f" go on; {way} discards what it has done"
        )


def bring_back(path: Path, places: Mapping[str, Path]) -> None:
    """Move shards back into their folders, from a store whose index was not written.

    A shard that the index names belongs to the store.
    """
    with output_errors(path):
        away = [file for file, folder in places.items() if not (folder / file).exists()]
        named = named_by_index(path) if away else set()
        for file in away:
            if file not in named:
                with contextlib.suppress(FileNotFoundError):
                    (path / file).rename(places[file] / file)


def _folders(path: Path) -> list[Path]:
    with contextlib.suppress(MissingFileError), read_errors(path):
        return sorted(each for each in path.iterdir() if _FOLDER.fullmatch(each.name))
    return []


def _look(folder: Path) -> Unfinished | None:
    """Return what a run has kept, None if that is nothing."""
    try:
        with read_errors(folder):
            return _found(folder)
    except WRONG:
        return None


def _found(folder: Path) -> Unfinished | None:
    origin, run = read_run(folder)
    kind, layers = str(run["kind"]), None
    layer: int | None = None
    if kind == "network":
        done, total, parts = _layers(folder, run), int(run["count"]), []
    else:
        starts = [int(each) for each in run["starts"]]
        named = named_by_index(folder.parent)
        parts = [
            (start, stop)
            for start, stop in pairwise(starts)
            if _is_there(folder / part_name(start, stop), named)
        ]
        done, total = sum(stop - start for start, stop in parts), starts[-1]
        if finished_key(folder.parent) == origin.key:
            return None
        layers = int(run["layers"])
        layer = _checkpoint(folder)
    found = Unfinished(
        kind=kind, done=done, total=total, parts_done=len(parts), layer=layer, layers=layers,
        parts=0 if kind == "network" else len(starts) - 1, nbytes=_bytes(folder), origin=origin,
    )  # fmt: skip
    return None if found.is_empty else found


def named_by_index(path: Path) -> set[str]:
    """Return the shards of the store in a folder; none if there is no store, or a damaged one."""
    try:
        return {str(shard["file"]) for shard in read_index(path)["shards"]}
    except WRONG:
        return set()


def finished_key(path: Path) -> str | None:
    """Return the key of the run whose answer is the store in a folder, None if there is none."""
    with contextlib.suppress(*WRONG):
        key = read_index(path).get("made_from")
        return None if key is None else str(key)
    return None


def _layers(folder: Path, run: dict[str, Any]) -> int:
    """Return how many layers of the record have their shard, and no finished store has it."""
    there = _there(folder, run, named_by_index(folder.parent), folder.parent)
    return sum(entry["shard"] in there for entry in run["layers"])


def _is_there(part: Path, named: set[str]) -> bool:
    """Whether a part is complete, and no finished store has it; nothing is verified."""
    try:
        index = read_index(part)
        return len(_there(part, index, named, part.parent.parent)) == len(index["shards"])
    except WRONG:
        return False


def _there(folder: Path, index: dict[str, Any], named: set[str], store: Path) -> set[str]:
    """Return the shards in a folder, or on their way into the store."""
    files = {str(shard["file"]) for shard in index["shards"]} - named
    return {file for file in files if any((at / file).exists() for at in (folder, store))}


def _checkpoint(folder: Path) -> int | None:
    """Return the layer at which the first part in the making goes on."""
    for each in sorted(folder.glob("part-*.run")):
        with contextlib.suppress(*WRONG):
            return int(read_index(each)["next_layer"])
    return None


def _bytes(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        with contextlib.suppress(OSError):  # a running process removes files
            total += file.stat().st_size if file.is_file() else 0
    return total
