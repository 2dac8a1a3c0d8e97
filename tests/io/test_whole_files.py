"""Output files appear whole or not at all."""

import contextlib
import gzip
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest

import gbdnn
from gbdnn.errors import FormatError, OutputError
from gbdnn.io.atomic import require_writable, whole_file, whole_folder


def write(path, content, then=None):
    with whole_file(path) as file:
        file.write(content)
        if then is not None:
            raise then


@pytest.fixture
def folder(tmp_path):
    """Return an empty folder; afterwards nothing temporary may be left in it."""
    yield tmp_path
    assert [x for x in tmp_path.rglob("*") if ".tmp" in x.name or x.name.startswith(".")] == []


def test_new_file(folder):
    write(folder / "a.tsv", b"new\n")
    assert (folder / "a.tsv").read_bytes() == b"new\n"
    assert [x.name for x in folder.iterdir()] == ["a.tsv"]


def test_takes_a_string(folder):
    write(str(folder / "a.tsv"), b"new\n")
    assert (folder / "a.tsv").read_bytes() == b"new\n"


def test_nothing_is_seen_before_the_end(folder):
    path = folder / "a.tsv"
    path.write_bytes(b"old\n")
    with whole_file(path) as file:
        file.write(b"new\n")
        file.flush()
        assert path.read_bytes() == b"old\n"
    assert path.read_bytes() == b"new\n"


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, SystemExit, FormatError])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_exception_leaves_the_old_file(folder, kind, name):
    path = folder / name
    path.write_bytes(b"old\n")
    with pytest.raises(kind):
        write(path, b"half", kind)
    assert path.read_bytes() == b"old\n"
    assert [x.name for x in folder.iterdir()] == [name]


def test_exception_leaves_no_new_file(folder):
    with pytest.raises(RuntimeError):
        write(folder / "a.tsv", b"half", RuntimeError)
    assert list(folder.iterdir()) == []


def test_failing_disk_leaves_the_old_file(folder, monkeypatch):
    path = folder / "a.tsv"
    path.write_bytes(b"old\n")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"a\.tsv: cannot be written: No space left") as caught:
        write(path, b"new\n")
    assert caught.value.errno == 28
    assert path.read_bytes() == b"old\n"
    assert [x.name for x in folder.iterdir()] == ["a.tsv"]


def test_gzip_by_name_and_equal_bytes(folder, monkeypatch):
    write(folder / "a.tsv.gz", b"new\n" * 1000)
    monkeypatch.setattr("time.time", lambda: 1e9)
    write(folder / "b.gz", b"new\n" * 1000)
    first, second = (folder / "a.tsv.gz").read_bytes(), (folder / "b.gz").read_bytes()
    assert gzip.decompress(first) == b"new\n" * 1000
    assert first == second


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_new_file_has_the_permissions_of_open(folder, umask):
    old = os.umask(umask)
    try:
        write(folder / "a.tsv", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((folder / "a.tsv").stat().st_mode) == 0o666 & ~umask


def test_permissions_of_the_old_file_stay(folder):
    path = folder / "a.tsv"
    path.write_bytes(b"old\n")
    path.chmod(0o640)
    write(path, b"new\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_read_only_file_stays(folder, monkeypatch):
    path = folder / "a.tsv"
    path.write_bytes(b"old\n")
    path.chmod(0o444)
    # The superuser may write to it all the same.
    monkeypatch.setattr(os, "access", lambda *args: False)
    with pytest.raises(OutputError, match=r"a\.tsv: cannot be written: Permission denied"):
        write(path, b"new\n")
    assert path.read_bytes() == b"old\n"


def test_link_keeps_pointing(folder):
    (folder / "real").mkdir()
    (folder / "link.tsv").symlink_to("real/a.tsv")
    write(folder / "link.tsv", b"first\n")
    write(folder / "link.tsv", b"second\n")
    assert (folder / "link.tsv").readlink().as_posix() == "real/a.tsv"
    assert (folder / "real" / "a.tsv").read_bytes() == b"second\n"
    assert [x.name for x in (folder / "real").iterdir()] == ["a.tsv"]


def test_link_to_itself(folder):
    (folder / "a.tsv").symlink_to("a.tsv")
    with pytest.raises(OutputError, match=r"a\.tsv: cannot be written: .*symbolic links"):
        write(folder / "a.tsv", b"")


def test_missing_folder(folder):
    with pytest.raises(OutputError, match=r"a\.tsv: .* the folder .*missing does not exist"):
        write(folder / "missing" / "a.tsv", b"")


def test_folder_is_a_file(folder):
    (folder / "file").write_bytes(b"old\n")
    with pytest.raises(OutputError, match=r"a\.tsv: cannot be written: Not a directory"):
        write(folder / "file" / "a.tsv", b"")
    assert (folder / "file").read_bytes() == b"old\n"


def test_target_is_a_folder(folder):
    (folder / "a.tsv").mkdir()
    with pytest.raises(OutputError, match=r"a\.tsv: cannot be written: is a folder"):
        write(folder / "a.tsv", b"")


def test_no_name():
    with pytest.raises(OutputError, match="cannot be written: No such file"):
        write("", b"")


def test_longest_name(folder):
    name = "n" * 251 + ".tsv"
    write(folder / name, b"new\n")
    assert (folder / name).read_bytes() == b"new\n"
    with pytest.raises(OutputError, match="name too long"):
        write(folder / ("n" + name), b"")


def test_device_is_written_to_not_replaced():
    before = os.stat("/dev/null")  # noqa: PTH116
    write("/dev/null", b"new\n")
    after = os.stat("/dev/null")  # noqa: PTH116
    assert stat.S_ISCHR(after.st_mode)
    assert (before.st_ino, before.st_rdev) == (after.st_ino, after.st_rdev)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_full_device():
    with pytest.raises(OutputError, match="/dev/full: cannot be written: No space left"):
        write("/dev/full", b"new\n" * 10000)


def test_fifo(folder):
    path = folder / "fifo"
    os.mkfifo(path)
    got = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    write(path, b"new\n")
    reader.join(10)
    assert got == [b"new\n"]
    assert stat.S_ISFIFO(path.stat().st_mode)


STREAM = """
import sys
from gbdnn.io.atomic import require_writable, whole_file
print("before", flush=True)
with whole_file("/dev/stdout") as file:
    file.write(b"new\\n")
print("after", flush=True)
"""


def test_own_output_into_a_pipe():
    done = subprocess.run([sys.executable, "-c", STREAM], capture_output=True, check=True)
    assert done.stdout.splitlines() == [b"before", b"new", b"after"]


def test_own_output_into_a_file(folder):
    path = folder / "log"
    with path.open("wb") as log:
        subprocess.run([sys.executable, "-c", STREAM], stdout=log, check=True)
    assert path.read_bytes().splitlines() == [b"before", b"new", b"after"]


def test_require_writable_tells_before_and_leaves_no_trace(tmp_path):
    target = tmp_path / "out.tsv"
    require_writable(target)
    assert list(tmp_path.iterdir()) == []
    target.write_text("old")
    require_writable(target)
    assert target.read_text() == "old"
    require_writable("/dev/null")
    for path in (tmp_path, tmp_path / "no" / "out.tsv", target / "under-a-file"):
        with pytest.raises(OutputError, match="cannot be written"):
            require_writable(path)
    assert [p.name for p in tmp_path.iterdir()] == ["out.tsv"]


# Where others may write


NOBODY = 65534


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder that all may write to, and how to make a link of another user in it."""
    if os.geteuid() == 0:
        folder = tmp_path / "shared"
        folder.mkdir()
        folder.chmod(0o1777)
    else:  # it is root's; the link is another's if this process says to be another
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o1777)
        owner = folder.stat()
        monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid + 1)
        stat_of = os.stat

        def of_root(path, *args, **options):
            found = stat_of(path, *args, **options)
            if Path(path) != folder:
                return found
            return os.stat_result((*found[:4], 0, *found[5:10]))

        monkeypatch.setattr(os, "stat", of_root)

    def link(name, target):
        (folder / name).symlink_to(target)
        if folder.parent == tmp_path:
            os.chown(folder / name, NOBODY, NOBODY, follow_symlinks=False)
        return folder / name

    yield folder, link
    shutil.rmtree(folder)


REFUSED = "is a symbolic link of another user in a folder that all may write to"


def write_folder(path):
    with whole_folder(path) as made:
        (made / "a").write_bytes(b"new\n")


def write_store(path):
    gbdnn.save(np.eye(3), path)


def write_answer(path):
    gbdnn.infer_to_store([np.eye(3)], np.eye(3), path)


def test_a_file_is_not_written_through_a_link_of_another_user(shared, tmp_path):
    _, link = shared
    mine = tmp_path / "mine.tsv"
    mine.write_bytes(b"mine\n")
    for target in (mine, tmp_path / "new.tsv"):
        path = link(f"to {target.name}", target)
        for call in (lambda path: write(path, b"new\n"), require_writable):
            with pytest.raises(OutputError, match=f"cannot be written: .*{REFUSED}"):
                call(path)
    (tmp_path / "folder").mkdir()
    link("folder", tmp_path / "folder")
    with pytest.raises(OutputError, match=REFUSED):
        write(shared[0] / "folder" / "a.tsv", b"new\n")
    (tmp_path / "chain").symlink_to(shared[0] / "to mine.tsv")
    with pytest.raises(OutputError, match=REFUSED):
        write(tmp_path / "chain", b"new\n")
    assert mine.read_bytes() == b"mine\n"
    assert not (tmp_path / "new.tsv").exists()
    assert not list((tmp_path / "folder").iterdir())


@pytest.mark.parametrize("call", [write_folder, write_store, write_answer])
def test_a_folder_is_not_written_through_a_link_of_another_user(shared, tmp_path, call):
    (tmp_path / "mine").mkdir()
    path = shared[1]("link", tmp_path / "mine")
    with pytest.raises(OutputError, match=REFUSED):
        call(path)
    assert not list((tmp_path / "mine").iterdir())


@pytest.mark.parametrize("function", ["stat", "lstat"])
def test_a_link_that_comes_while_the_path_is_looked_at(shared, tmp_path, monkeypatch, function):
    folder, link = shared
    mine, path = tmp_path / "mine.tsv", folder / "Y.tsv"
    mine.write_bytes(b"mine\n")
    plain = getattr(os, function)

    def looked_at(each, *args, **options):
        try:
            return plain(each, *args, **options)
        finally:
            if each == path or each == str(path):
                monkeypatch.setattr(os, function, plain)
                link("Y.tsv", mine)

    monkeypatch.setattr(os, function, looked_at)
    with contextlib.suppress(OutputError):
        write(path, b"new\n")
    assert mine.read_bytes() == b"mine\n"


def test_other_links_are_followed(shared, tmp_path):
    folder, _ = shared
    mine = tmp_path / "mine.tsv"
    if os.geteuid() == 0:  # root's own, in root's folder
        (folder / "own.tsv").symlink_to(mine)
        write(folder / "own.tsv", b"new\n")
        assert mine.read_bytes() == b"new\n"
        (tmp_path / "of nobody").symlink_to(mine)  # nobody else may write to its folder
        os.chown(tmp_path / "of nobody", NOBODY, NOBODY, follow_symlinks=False)
        write(tmp_path / "of nobody", b"newer\n")
        assert mine.read_bytes() == b"newer\n"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write(tmp_path / "link" / ".." / "link" / "a.tsv", b"new\n")
    write_store(tmp_path / "link" / "net")
    assert (tmp_path / "real" / "a.tsv").read_bytes() == b"new\n"
    assert gbdnn.load(tmp_path / "real" / "net").nvals == 3


def test_the_file_that_is_written_gets_the_permissions_and_no_other(tmp_path):
    """Who owns the folder can put a link in the place of the temporary file."""
    path, private = tmp_path / "a.tsv", tmp_path / "private"
    path.write_bytes(b"old\n")
    path.chmod(0o666)
    private.write_bytes(b"mine\n")
    private.chmod(0o600)
    before = private.stat()
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    with whole_file(path) as file:
        file.write(b"new\n")
        (temporary,) = tmp_path.glob(".gbdnn-*.tmp")
        temporary.unlink()
        temporary.symlink_to(private)
    after = private.stat()
    assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)


def test_what_replaces_a_private_file_is_private_from_the_beginning(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(b"old\n")
    path.chmod(0o600)
    with whole_file(path):
        (temporary,) = tmp_path.glob(".gbdnn-*.tmp")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600


def test_the_shards_that_are_written_get_the_permissions_and_no_others(tmp_path, monkeypatch):
    private, store = tmp_path / "private", tmp_path / "Y"
    gbdnn.save(np.eye(3), store)
    for each in store.iterdir():
        each.chmod(0o666)
    private.write_bytes(b"mine\n")
    private.chmod(0o600)

    def swap(record):
        """Put a link in the place of a complete part's shard, with its content."""
        (shard,) = store.glob(".gbdnn-*/part-*/shard-*")
        private.write_bytes(shard.read_bytes())
        shard.unlink()
        shard.symlink_to(private)

    with contextlib.suppress(OutputError):
        gbdnn.infer_to_store([np.eye(3)], np.eye(3), store, stats=swap)
    assert stat.S_IMODE(private.stat().st_mode) == 0o600


def test_errors_of_the_system_while_a_temporary_file_is_made_leave_none(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    plain = fcntl.flock

    def stop(*args):
        monkeypatch.setattr(fcntl, "flock", plain)
        raise KeyboardInterrupt

    for call in (lambda: write(tmp_path / "a.tsv", b""), lambda: write_folder(tmp_path / "a")):
        monkeypatch.setattr(fcntl, "flock", stop)
        with pytest.raises(KeyboardInterrupt):
            call()
    assert not list(tmp_path.iterdir())
