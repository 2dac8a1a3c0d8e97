"""Locks in a forked child: it has one thread, and no other will release them."""

import functools
import importlib
import inspect
import os
import pkgutil
import re
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from shell import python

import gbdnn
from gbdnn.runtime import forks

KINDS = (
    type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event,
    threading.Semaphore, threading.Barrier,
)  # fmt: skip
ROOT = Path(gbdnn.__file__).parent


def modules():
    for each in pkgutil.walk_packages(gbdnn.__path__, "gbdnn."):
        if each.name.endswith("__main__"):
            continue
        with suppress(ImportError, RuntimeError):  # an optional package
            yield importlib.import_module(each.name)


def test_locks_of_modules_and_classes_are_renewed():
    found = 0
    for module in modules():
        holders = [module, *(x for _, x in inspect.getmembers(module, inspect.isclass))]
        for holder in (x for x in holders if getattr(x, "__module__", "gbdnn").startswith("gbdnn")):
            for name, x in vars(holder).items():
                lock = getattr(x, "lock", None) if isinstance(x, functools.cached_property) else x
                if isinstance(lock, KINDS):
                    found += 1
                    assert lock in forks._locks, f"{holder}.{name}"
    assert found


def test_every_lock_of_the_package_is_made_to_be_renewed():
    made = re.compile(r"(renewed\()?(?:threading\.)?\b(R?Lock|Condition|Semaphore|Event)\(")
    found = 0
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        for match in made.finditer(path.read_text(encoding="utf-8")):
            found += 1
            assert match[1], f"{name}: {match[0]}"
    assert found > 5


FORK = """
import os, threading
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
    os._exit(42 if layer.prepared(lambda layer: 7) == 7 else 43)
for _ in range(300):
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        print(os.waitstatus_to_exitcode(status))
        break
    __import__("time").sleep(0.1)
else:
    os.kill(child, 9)
ended.set()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_prepares_what_another_thread_was_preparing():
    assert python(FORK).stdout.split() == ["42"]
