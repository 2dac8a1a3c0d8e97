"""Errors keep what they have when a place is put before their message, and between processes."""

import copy
import errno
import pickle

import pytest

import gbdnn
from gbdnn.errors import naming

CLASSES = [
    each for each in vars(gbdnn.errors).values()
    if isinstance(each, type) and issubclass(each, gbdnn.GbdnnError)
]  # fmt: skip


@pytest.mark.parametrize("kind", CLASSES)
def test_a_place_is_put_before_any_message(kind):
    error = kind("what is wrong")
    error.run = "attribute"
    error.add_note("note")
    if isinstance(error, OSError):
        error.errno = errno.ENOSPC
    with pytest.raises(kind) as caught, naming("layer 3"):
        raise error
    for found in caught.value, pickle.loads(pickle.dumps(error)), copy.copy(error):  # noqa: S301
        assert (type(found), str(found)) == (kind, "layer 3: what is wrong")
        assert (found.run, found.__notes__) == ("attribute", ["note"])
        assert not isinstance(error, OSError) or found.errno == errno.ENOSPC


def test_other_errors_stay_as_they_are():
    with pytest.raises(ZeroDivisionError, match=r"^as it was$"), naming("layer 3"):
        raise ZeroDivisionError("as it was")
