"""Locks in a forked child: it has one thread, and no other will release them."""

import os
import re
from pathlib import Path

import pytest
from shell import python

import gbdnn

ROOT = Path(gbdnn.__file__).parent


def test_every_lock_of_the_package_is_made_to_be_renewed():
    """Those of cached properties too, which have one in Python 3.11."""
    other, found = re.compile(r"\b(threading\.\w*Lock|Lock|Condition|Semaphore|Event)\("), 0
    for path in ROOT.rglob("*.py"):
        name, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
        assert not other.search(text), name
        found += len(re.findall(r"\bnew_lock\(", text))
        if name != "runtime/forks.py":
            assert not re.search(r"functools(\.| import .*)cached_property", text), name
    assert found > 5


FORK = """
import os, signal, threading
import numpy as np
import gbdnn

layer, begun, ended = gbdnn.Layer(np.eye(3)), threading.Event(), threading.Event()

def slow(layer):
    begun.set()
    ended.wait()

thread = threading.Thread(target=layer.prepared, args=(slow,))
thread.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(60)
    os._exit(42 if layer.prepared(lambda layer: 7) == 7 else 43)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
ended.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_prepares_what_another_thread_was_preparing():
    assert python(FORK).stdout.split() == ["42"]


IMPORTS = """
import importlib.abc, os, signal, sys, threading
import gbdnn

begun, go = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, *_):
        if name == NAME:
            begun.set()
            go.wait()

def first_use():
    USE

sys.meta_path.insert(0, Slow())
threading.Thread(target=first_use).start()
begun.wait()
os.register_at_fork(before=go.set)  # the import goes on as the fork begins
child = os.fork()
if not child:
    signal.alarm(30)
    first_use()
    os._exit(42)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("gbdnn.graph", "gbdnn.graph"),
        ("gbdnn.training.train", "gbdnn.train"),
        ("scipy.sparse", "gbdnn.runtime.optional.require('scipy.sparse', 'files', '')"),
    ],
)
def test_a_fork_waits_for_imports_on_first_use(name, use):
    """Python's lock of a module would stay held in the child."""
    code = IMPORTS.replace("NAME", repr(name)).replace("USE", use)
    assert python(code, OMP_NUM_THREADS="1").stdout.split() == ["42"]
