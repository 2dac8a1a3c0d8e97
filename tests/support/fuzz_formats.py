"""Damaged files of every format: each is read right, or refused with the errors of its page.

    python tests/support/fuzz_formats.py CASES SEED [FORMAT ...]
    python tests/support/fuzz_formats.py --case FORMAT SEED       a case that failed, once more

A case is a format and a seed. Other processes read the files, so that a crash, an endless loop or
too much memory is a failure and not the end.
What is right is told by NumPy, SciPy, PyTorch, ONNX Runtime (where it is installed), and by
`fuzz_readers`, which share no code with gbdnn.
"""

import collections
import contextlib
import faulthandler
import importlib
import importlib.util
import itertools
import pathlib
import queue
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import fuzz_cases

SECONDS = 60.0  # for a case
ADDRESSES = 16 << 30  # bytes of address space
MEMORY = 512 << 20  # bytes by which a case may grow: the packages it imports, numbers it reads

NEEDS = {
    "matrix_market": ("fuzz_files", "scipy", "polars"),
    "tsv": ("fuzz_files", "polars"),
    "categories": ("fuzz_files", "polars"),
    "idx": ("fuzz_files",),
    "labels": ("fuzz_files",),
    "npy": ("fuzz_files",),
    "npz": ("fuzz_files", "scipy"),
    "scipy": ("fuzz_files", "scipy"),
    "store": ("fuzz_networks", "safetensors", "xxhash"),
    "torch": ("fuzz_networks", "torch"),
    "onnx": ("fuzz_onnx", "onnx", "scipy"),
    "checkpoint": ("fuzz_training", "safetensors", "xxhash", "numba"),
    "run": ("fuzz_training", "safetensors", "xxhash", "numba"),
    "conversion": ("fuzz_resume", "safetensors", "xxhash"),
    "parts": ("fuzz_resume", "safetensors", "xxhash", "scipy"),
    "streamed": ("fuzz_resume", "safetensors", "xxhash", "scipy"),
}
"""Of each format the module with its cases, and the packages that it takes."""

SELDOM = ("conversion", "parts", "streamed")  # a case of them takes as long as ten of the others


def _misread(*_):
    raise fuzz_cases.MisreadError("1 is read, 0 is there")


# To see that the worker sees them.
FAULTS = {
    "crash": lambda *_: faulthandler._sigsegv(),
    "hang": lambda *_: time.sleep(1000),
    "misreading": _misread,
    "memory": lambda *_: "read" if bytearray(b"x" * (MEMORY + (1 << 28))) else "",
}


def formats():
    """The formats whose packages are installed."""
    return [name for name, (_, *needs) in NEEDS.items() if all(map(_is_installed, needs))]


def _is_installed(package):
    return importlib.util.find_spec(package) is not None


def run_case(name, seed):
    """Return ``read`` or ``refused``, or raise."""
    case = FAULTS.get(name) or getattr(importlib.import_module(NEEDS[name][0]), f"case_{name}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gbdnn-fuzz-"))
    try:
        return case(random.Random(f"{name} {seed}"), folder)  # noqa: S311 -- a seed is wanted
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Memory:
    """Tells by how much a process has grown at most, where the system says so."""

    _peak = pathlib.Path("/proc/self/clear_refs")

    def __init__(self):
        self._before = None
        with contextlib.suppress(OSError):
            self._peak.write_text("5")  # forgets the peak
            self._before = self._bytes("VmRSS")

    def growth(self):
        return None if self._before is None else self._bytes("VmHWM") - self._before

    @staticmethod
    def _bytes(name):
        text = pathlib.Path("/proc/self/status").read_text()
        return int(text.split(f"{name}:")[1].split()[0]) * 1024


def work():
    """Read cases from standard input, and answer each with a line."""
    import resource
    import warnings

    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        name, seed = line.split()
        try:
            memory = Memory()
            answer = run_case(name, int(seed))
            if (grown := memory.growth() or 0) > MEMORY:
                answer = f"FAILED {grown >> 20} MiB"
        except BaseException as err:
            last = traceback.extract_tb(err.__traceback__)[-1]
            answer = f"FAILED {type(err).__name__}: {err} ({last.filename}:{last.lineno})"
        print(" ".join(answer.split())[:400], file=out, flush=True)


class Worker:
    """A process that reads cases one by one; another one takes its place when it dies."""

    def __init__(self):
        self._process = None

    def ask(self, name, seed):
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, "--work"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
            self._selector = selectors.DefaultSelector()
            self._selector.register(self._process.stdout, selectors.EVENT_READ)
        try:
            self._process.stdin.write(f"{name} {seed}\n")
            self._process.stdin.flush()
            # The first case waits for packages to be imported.
            if not self._selector.select(SECONDS):
                self.close()
                return "FAILED hangs"
            answer = self._process.stdout.readline().strip()
        except BrokenPipeError:
            answer = ""
        if not answer:
            code = self._process.wait()
            self.close()
            return f"FAILED the process ended with {code}"
        return answer

    def close(self):
        if self._process is not None:
            self._selector.close()
            self._process.kill()
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None


def fuzz(cases, seed, names=None, workers=2):
    """Run cases; return counts of what came of them, the failures, and counts by format."""
    names = names or formats()
    todo = queue.SimpleQueue()
    others = [name for name in names if name not in SELDOM]
    turns = itertools.cycle([*others * 5, *names] if others else names)
    for k in range(cases):
        todo.put((next(turns), seed * 10**7 + k))
    counts, failures = collections.Counter(), []
    by_format = {name: collections.Counter() for name in names}

    def take():
        worker = Worker()
        while True:
            try:
                case = todo.get_nowait()
            except queue.Empty:
                break
            answer = worker.ask(*case)
            if answer.startswith("FAILED"):
                failures.append((*case, answer))
                answer = "failed"
            counts[answer] += 1
            by_format[case[0]][answer] += 1
        worker.close()

    threads = [threading.Thread(target=take) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, failures, by_format


def say(line):
    sys.stdout.write(f"{line}\n")


def main(arguments):
    if arguments[:1] == ["--work"]:
        return work()
    if arguments[:1] == ["--case"]:
        return say(run_case(arguments[1], int(arguments[2])))
    cases, seed, *names = arguments
    started = time.perf_counter()
    counts, failures, by_format = fuzz(int(cases), int(seed), names)
    for name, number, what in failures:
        say(f"{name} {number}: {what}")
    for name, found in by_format.items():
        say(f"{name:14}" + ", ".join(f"{found[x]:6} {x}" for x in ("read", "refused", "failed")))
    say(
        f"{cases} cases, seed {seed}, {len(names or formats())} formats: {counts['read']} read,"
        f" {counts['refused']} refused, {counts['failed']} failed,"
        f" {time.perf_counter() - started:.0f} s"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
