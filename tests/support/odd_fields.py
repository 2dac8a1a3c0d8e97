"""JSON documents with one odd field."""

import copy

VALUES = ("missing", None, -1, 10**12, 0.5, "x", [], {}, True)


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
