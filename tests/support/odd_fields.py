"""JSON documents of stores, with one odd field."""

import copy

from gbdnn.io.store.folder import read_json

VALUES = ("missing", None, -1, 10**12, 0.5, "x", [], {}, True)


def content_of(path):
    """Return the content of a store's file, without what is added when it is written."""
    added = {"format", "version", "xxh3_64"}
    return {key: x for key, x in read_json(path).items() if key not in added}


def variants(document):
    """Yield copies of a document in which one field is missing or has another value."""
    for place in _places(document):
        for value in VALUES:
            changed = inner = copy.deepcopy(document)
            for key in place[:-1]:
                inner = inner[key]
            inner[place[-1]] = value
            if value == "missing":
                del inner[place[-1]]
            yield changed


def _places(x, at=()):
    """Yield the keys that lead to each field."""
    for key in x if isinstance(x, dict) else range(len(x)) if isinstance(x, list) else ():
        yield (*at, key)
        yield from _places(x[key], (*at, key))
