"""Output files appear whole or not at all."""

import gzip
import os
import stat
import subprocess
import sys
import threading

import pytest

from gbdnn.errors import FormatError, OutputError
from gbdnn.io.atomic import require_writable, whole_file


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
