"""Networks written layer by layer, by a call that goes on where a killed one stopped.

What is complete is a shard: the layers in it, and the run's record that names them, are on the
disk. After a kill or an error they stay in the unfinished store; the same call checks them against
their checksums, and goes on with the first layer that is not among them.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gbdnn.arrays.checks import as_path
from gbdnn.errors import GbdnnError, OutputError
from gbdnn.io.reading import WRONG, foreign_errors
from gbdnn.io.store.fingerprints import checksum
from gbdnn.io.store.network import LayerWriter, read_network
from gbdnn.io.store.reader import Reader
from gbdnn.io.store.shards import Shards
from gbdnn.io.store.unfinished import (
    RUN,
    Origin,
    bring_back,
    finished_key,
    named_by_index,
    read_run,
    run_folder,
    write_run,
)
from gbdnn.io.store.writer import Writer, remove_left

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from gbdnn.model.layer import Layer

__all__ = ["LayerSource", "save_layers"]


@dataclass(frozen=True, kw_only=True)
class LayerSource:
    """Where the layers of a network come from, one by one.

    Attributes
    ----------
    origin : Origin
        What they follow from.
    count : int
        How many.
    layers : callable
        ``layers(k)`` returns an iterator of layer k and those behind it.
    mark : callable, optional
        ``mark(k)`` returns a fingerprint of what layer k alone is read from, where the origin does
        not tell.
    """

    origin: Origin
    count: int
    layers: Callable[[int], Iterable[Layer]]
    mark: Callable[[int], str] | None = None

    def marks(self) -> list[str]:
        """Return the marks of all layers, for which the files are read."""
        return ["" if self.mark is None else self.mark(k) for k in range(self.count)]

    def key(self, marks: list[str]) -> str:
        """Return a checksum of all that the network follows from."""
        return checksum("\n".join([self.origin.key, *marks]).encode())


def save_layers(
    source: LayerSource,
    path: str | os.PathLike[str],
    *,
    restart: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Save a network in a store, as `gbdnn.save` does, and go on after a kill.

    A store that the same call has finished is left as it is.

    Parameters
    ----------
    source : LayerSource
        The layers.
    path : path-like
        As for `gbdnn.save`.
    restart : bool, default False
        Whether to begin anew, and to discard what this or another run has done.
    progress : callable, optional
        Called as ``progress(k, count)`` when k of all layers have been written; at first with those
        of an earlier call.

    Raises
    ------
    OutputError
        As `gbdnn.save`; or the folder holds layers of another run; or a file that a written layer
        was read from is another one now.
    ReadError
        The system does not let what has been done be read; it is kept.
    """
    made_from = None if restart else finished_key(as_path(path))
    if made_from is not None and made_from == source.key(source.marks()):
        remove_left(as_path(path))
        if progress is not None:
            progress(source.count, source.count)
        return
    with _Keeper(path, source, restart=restart) as writer:
        layers = LayerWriter(writer, writer.entries)
        if progress is not None:
            progress(len(writer.entries), source.count)
        for layer in source.layers(len(writer.entries)):
            mark = "" if source.mark is None else source.mark(len(writer.entries))
            writer.take(layers.write(layer), mark)
            del layer
            if progress is not None:
                progress(len(writer.entries), source.count)
        writer.finish("network", {"layers": writer.entries, "made_from": source.key(writer.marks)})


class _Keeper(Writer):
    """A Writer whose complete shards stay in the unfinished store.

    Attributes
    ----------
    entries : list of dict
        The index's entries of the layers that have been written.
    marks : list of str
        Their marks.
    """

    def __init__(self, path: str | os.PathLike[str], source: LayerSource, *, restart: bool) -> None:
        super().__init__(path, origin=source.origin, restart=restart)
        self._source = source
        self._new = run_folder(self._folder, source.origin.key)
        self.entries: list[dict[str, Any]] = []
        self.marks: list[str] = []

    def take(self, entry: dict[str, Any], mark: str) -> None:
        """Take the entry of the layer that has been added last."""
        self.entries.append(entry)
        self.marks.append(mark)

    def _begin(self) -> None:
        self._new.mkdir(self.folder_mode, exist_ok=True)
        with contextlib.suppress(*WRONG):
            self._take_run(read_run(self._new)[1])
        self._drop_unsound()
        self._require_marks()
        needed = {RUN, *self._places} if self._places else set()
        for path in self._new.iterdir():  # shards that were not complete, or are damaged
            if path.name not in needed:
                path.unlink()

    def _take_run(self, run: dict[str, Any]) -> None:
        """Take shards and layers of an earlier call, up to the first one that is damaged."""
        entries, marks, finished = run["layers"], run["marks"], named_by_index(self._folder)
        by_shard: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            by_shard.setdefault(entry["shard"], []).append(entry)
        for shard in run["shards"]:
            here = by_shard[shard["file"]]
            if shard["file"] in finished:  # killed when all was done but the cleaning up
                return
            bring_back(self._folder, {shard["file"]: self._new})
            if not _is_whole(self._new, shard, here):
                return
            self._keep(shard, self._new)
            self.entries += here
            self.marks = marks[: len(self.entries)]

    def _drop_unsound(self) -> None:
        """Forget layers from the first one whose entry in the record is not what its arrays are."""
        index = {"kind": "network", "shards": self._shards, "layers": self.entries, "checksum": ""}
        sound = 0
        try:
            net = read_network(Reader(self._new, verify=False, index=index))
            while sound < len(net):
                net[sound]
                sound += 1
        except GbdnnError as err:
            if _is_of_the_system(err):  # it says nothing of the layer
                raise
        if sound < len(self.entries):
            bad = self.entries[sound]["shard"]
            sound = next(k for k, entry in enumerate(self.entries) if entry["shard"] == bad)
            self.entries, self.marks = self.entries[:sound], self.marks[:sound]
            kept = {entry["shard"] for entry in self.entries}
            self._shards = [shard for shard in self._shards if shard["file"] in kept]

    def _require_marks(self) -> None:
        for k, mark in enumerate(self.marks):
            if self._source.mark is not None and self._source.mark(k) != mark:
                raise OutputError(
                    f"{self._folder}: holds {len(self.marks):,} of {self._source.count:,} layers,"
                    f" and the file of layer {k} (counted from 0) has another content than when it"
                    " was read; restart=True (in the shell --restart) begins anew"
                )

    def _flush(self) -> None:
        super()._flush()
        source = self._source
        fields = {
            "kind": "network",
            "count": source.count,
            "layers": self.entries,
            "marks": self.marks,
            "shards": self._shards,
        }
        write_run(self._new, source.origin, fields)

    def _abandon(self) -> None:
        """Remove the folder if nothing is kept: a record is there when a shard is complete."""
        try:
            (self._new / RUN).lstat()
        except FileNotFoundError:
            super()._abandon()
        except OSError:
            return


def _is_of_the_system(err: BaseException | None) -> bool:
    """Whether an error, or one that it follows from, is about files or memory and no content."""
    while err is not None:
        if isinstance(err, OSError | MemoryError):
            return True
        err = err.__cause__
    return False


def _is_whole(folder: Path, shard: dict[str, Any], entries: list[dict[str, Any]]) -> bool:
    """Whether a shard has the size, the header and the arrays that the record tells."""
    shards = Shards(folder, [shard], verify=True)
    try:
        with foreign_errors(folder / shard["file"], "cannot be read"):
            for entry in entries:
                for tensor in entry["tensors"].values():
                    shards.array(shard["file"], tensor)
    except WRONG:
        return False
    return True
