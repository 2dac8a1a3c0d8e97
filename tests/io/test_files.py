"""Output files and folders appear whole or not at all."""

import gzip
import os
import stat
from pathlib import Path

import pytest
from calls import raises, raising

from gbdnn.errors import FormatError, OutputError
from gbdnn.io.writing import require_writable, whole_file, whole_folder


def write(path, content, then=None):
    with whole_file(path) as file:
        file.write(content)
        if then is not None:
            raise then


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_clean_up_that_fails_does_not_hide_the_error(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", raising(OSError(5, "Input/output error")))
        with pytest.raises(OutputError, match=r"a\.tsv: cannot be written: No space left") as found:
            write(tmp_path / "a.tsv", b"half", OSError(28, "No space left on device"))
    assert found.value.errno == 28


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, FormatError])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_an_exception_leaves_the_old_file(tmp_path, kind, name):
    (tmp_path / name).write_bytes(b"old\n")
    for each in (name, f"new-{name}"):
        raises(kind, None, write, tmp_path / each, b"half", kind)
    assert (tmp_path / name).read_bytes() == b"old\n"
    assert names(tmp_path) == [name]


def test_equal_content_gives_equal_gzip_files(tmp_path, monkeypatch):
    write(tmp_path / "a.tsv.gz", b"new\n" * 1000)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write(tmp_path / "b.gz", b"new\n" * 1000)
    first, second = (tmp_path / "a.tsv.gz").read_bytes(), (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress(first) == b"new\n" * 1000
    assert first == second


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_follows_the_umask(tmp_path, umask):
    old = os.umask(umask)
    try:
        write(tmp_path / "a.tsv", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "a.tsv").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666])
def test_the_permissions_of_an_existing_file_are_kept(tmp_path, mode):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"old\n")
    path.chmod(mode)
    write(path, b"new\n")
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_read_only_file_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"old\n")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write to any file
    raises(OutputError, r"a\.tsv: cannot be written: .* is read-only", write, path, b"new\n")
    assert path.read_bytes() == b"old\n"


def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.tsv").symlink_to("real/a.tsv")
    write(tmp_path / "link.tsv", b"first\n")
    write(tmp_path / "link.tsv", b"second\n")
    assert (tmp_path / "link.tsv").readlink().as_posix() == "real/a.tsv"
    assert (tmp_path / "real" / "a.tsv").read_bytes() == b"second\n"
    assert names(tmp_path / "real") == ["a.tsv"]


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(b"old\n")
    (tmp_path / "loop").symlink_to("loop")
    for path, match in (
        (tmp_path / "folder", "it is a folder"),
        (tmp_path / "missing" / "a.tsv", "the folder .*missing does not exist"),
        (tmp_path / "file" / "a.tsv", "Not a directory"), (tmp_path / "loop", "symbolic links"),
        (tmp_path / ("n" * 256), "name too long"), ("a\0b", "NUL"), ("", "it is a folder"),
    ):  # fmt: skip
        for call in (lambda path: write(path, b""), require_writable):
            raises(OutputError, f"cannot be written: .*{match}", call, path)
    require_writable(tmp_path / "new")
    require_writable(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old\n"
    assert names(tmp_path) == ["file", "folder", "loop"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")  # noqa: PTH110
def test_a_full_device():
    with pytest.raises(OutputError, match="/dev/full: cannot be written: No space left"):
        write("/dev/full", b"new\n" * 10000)


def test_a_folder_appears_at_the_end(tmp_path):
    path = tmp_path / "net"
    with whole_folder(path) as folder:
        (folder / "a").write_text("1")
        assert not path.exists()
    assert names(path) == ["a"]
    (tmp_path / "empty").mkdir()
    with whole_folder(tmp_path / "empty") as folder:
        (folder / "a").write_text("1")
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "half"):
        raise KeyboardInterrupt
    assert names(tmp_path) == ["empty", "net"]
