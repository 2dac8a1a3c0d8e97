"""IDX files, written here by hand, read back; and every way in which such a file can be wrong."""

import gzip
import struct

import numpy as np
import pytest

from gbdnn.errors import FormatError
from gbdnn.io.array_files import read_idx

TYPES = [
    (0x08, "B", np.uint8, [0, 1, 128, 255, 7, 9]),
    (0x09, "b", np.int8, [0, 1, -128, 127, 7, 9]),
    (0x0B, "h", np.int16, [0, 258, -32768, 32767, 7, 9]),
    (0x0C, "i", np.int32, [0, 16909060, -(2**31), 2**31 - 1, 7, 9]),
    (0x0D, "f", np.float32, [0.0, -0.5, 1.5, 3e38, 7.0, 9.0]),
    (0x0E, "d", np.float64, [0.0, -0.1, 1e300, 1e-300, 7.0, 9.0]),
]


def idx(code, letter, sizes, values):
    header = bytes([0, 0, code, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes)
    return header + struct.pack(f">{len(values)}{letter}", *values)


@pytest.fixture
def write(tmp_path):
    def write(data, name="file-idx"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(("code", "letter", "dtype", "values"), TYPES)
def test_every_type_plain_and_gzip(write, pack, code, letter, dtype, values):
    # the name tells the opposite of what the file is
    name = "a-idx2.gz" if pack is bytes else "a-idx2"
    found = read_idx(write(pack(idx(code, letter, (2, 3), values)), name))
    assert found.dtype == dtype
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, np.array(values, dtype).reshape(2, 3))
    found[0, 0] = 1  # an array of the caller's own


@pytest.mark.parametrize("sizes", [(), (6,), (1, 6), (3, 1, 2), (2, 1, 3, 1), (4, 0, 3)])
def test_every_rank(write, sizes):
    count = int(np.prod(sizes))
    found = read_idx(write(idx(0x08, "B", sizes, range(count))))
    assert found.shape == sizes
    assert found.ravel().tolist() == list(range(count))


def test_gzip_members_follow_each_other(write):
    data = idx(0x08, "B", (6,), range(6))
    found = read_idx(write(gzip.compress(data[:5]) + gzip.compress(data[5:])))
    assert found.tolist() == list(range(6))


GOOD = idx(0x0B, "h", (2, 3), range(6))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (GOOD[:3], "not an IDX file: it begins with 00 00 0b"),
        (b"\0\0\x0a" + GOOD[3:], "not an IDX file"),
        (GOOD[:4], "truncated in its header"),
        (GOOD[:-1], r"truncated; shape \(2, 3\) of int16 takes 12 bytes, found 11"),
        (GOOD + b"\0", "has bytes after the last element; .* found 13"),
        (idx(0x08, "B", (0, 2**32 - 1, 2**32 - 1, 2**32 - 1), []), "cannot make an array of shape"),
        (idx(0x08, "B", (1,) * 65, [1]), "cannot make an array of shape"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_what_is_not_idx(write, packed, data, message):
    path = write(gzip.compress(data) if packed else data)
    with pytest.raises(FormatError, match=message) as caught:
        read_idx(path)
    assert str(caught.value).startswith(f"{path}: ")
