"""Commands that go on after a kill: what they say, and where layers come from one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from gbdnn.cli import formats
from gbdnn.cli.outputs import require_new
from gbdnn.cli.terminal import say
from gbdnn.io.reading import read_bytes, read_errors
from gbdnn.io.store.fingerprints import checksum, of_network
from gbdnn.io.store.resumed import LayerSource, save_layers
from gbdnn.io.store.unfinished import Origin, find_unfinished, finished_key
from gbdnn.io.store.writer import remove_left

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import gbdnn
    from gbdnn.cli.options import Given

    Show = Callable[[int, int | None], object] | None

Restart = Annotated[
    bool, Option("--restart", help="Begin anew; discard what a killed run has left.")
]


class Resumed:
    """Progress of a store that is written part by part: says where it goes on, and shows a bar.

    Parameters
    ----------
    path : Path
        The store.
    show : callable, optional
        Of a progress bar.
    restart : bool
        Whether nothing is gone on with.
    force : bool
        Whether a finished store is replaced.

    Attributes
    ----------
    was_complete : bool
        Whether there was nothing left to do.

    Raises
    ------
    OutputError
        When it is told that something is left to do: a finished store would be replaced.
    """

    def __init__(self, path: Path, show: Show, *, restart: bool, force: bool) -> None:
        self._path, self._show, self._force = path, show, force
        self._left = None if restart else find_unfinished(path)
        self._has_begun = self.was_complete = False

    def __call__(self, done: int, total: int) -> None:
        """Take how much is done; at first what an earlier run has done."""
        if not self._has_begun:
            self._has_begun, self.was_complete = True, done == total > 0
            left = self._left
            if not self.was_complete and not self._force:
                require_new(self._path)
            if left is not None and not self.was_complete:
                words = f"{left.what.removesuffix('s')} {done:,} of {total:,}"
                if left.layer is not None:
                    words += f", layer {left.layer:,} of {left.layers:,}"
                say(f"{self._path}: resumes at {words}")
        if self._show is not None:
            self._show(done, total)


def save(source: LayerSource, out: Path, show: Show, *, restart: bool, force: bool) -> None:
    """Save a network layer by layer, or go on with it; what is finished is not written again."""
    made_from = None if restart else finished_key(out)
    if made_from is not None and made_from == source.key(source.marks()):
        remove_left(out)
        say(f"{out}: is complete: nothing was left to write")
        return
    if not force:
        require_new(out)
    resumed = Resumed(out, show, restart=restart, force=True)
    save_layers(source, out, restart=restart, progress=resumed)


def of_layers(net: gbdnn.Network, origin: Origin | None = None) -> LayerSource:
    """Return a network's layers."""
    if origin is None:
        fingerprint, words = of_network(net)
        origin = Origin.of({"network": fingerprint}, {"network": words})
    return LayerSource(origin=origin, count=len(net), layers=lambda k: net[k:])


def of_tsv(path: Path, given: Given) -> LayerSource:
    """Return the layers of the challenge's files.

    Of layers that have been read the files' content counts, of all files name and size.
    """
    files = formats.files(path, "tsv", given)
    with read_errors(path):
        names = [(file.name, file.stat().st_size) for file in files]
    options = ", ".join(f"{name} {x}" for name, x in sorted(given.keywords().items()))
    origin = Origin.of(
        {
            "files": checksum(repr(names).encode()),
            "layers": str(len(files)),
            "options": options or "none",
        },
        {"files": str(path.absolute())},
    )
    return LayerSource(
        origin=origin,
        count=len(files),
        layers=lambda k: formats.read_tsv_layers(path, given, start=k),
        mark=lambda k: checksum(read_bytes(files[k])),
    )
