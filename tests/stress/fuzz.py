"""Read damaged files of every format: each is read, or refused with an error of gbdnn.

    python tests/stress/fuzz.py 20000       # cases
    python tests/stress/fuzz.py 20000 7     # from another seed

A case changes, inserts, removes or repeats bytes of one good file. Processes of 500 cases each run
one after the other; one that crashes, or hangs for a minute, ends with its case and a traceback.
"""

import faulthandler
import gzip
import importlib.util
import itertools
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path

import numpy as np

import gbdnn
from gbdnn import io

PART = 500


def made(folder):
    """Write good files; return for each its path, the file to damage, and its reader."""
    import scipy.io
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    A = sp.random_array((12, 12), density=0.3, format="csr", rng=rng, dtype=np.float32)
    net = gbdnn.Network([gbdnn.Layer(A, bias) for bias in (-0.5, np.arange(12) / 8)])
    X = gbdnn.Layer(A).W
    io.write_features(X, folder / "x.tsv")
    io.write_categories([1, 5, 7], folder / "c.tsv")
    scipy.io.mmwrite(folder / "x.mtx", A)
    scipy.io.mmwrite(folder / "full.mtx", A.toarray())
    for name in ("x.tsv", "x.mtx"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    sp.save_npz(folder / "x.npz", A)
    sp.save_npz(folder / "plain.npz", A, compressed=False)
    np.save(folder / "x.npy", A.toarray())
    head = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (3, 4, 4))
    (folder / "x.idx").write_bytes(head + rng.bytes(48))
    (folder / "y.txt").write_text("3\n1\n2\n")
    readers = {
        "x.tsv": io.read_features, "x.tsv.gz": io.read_features, "c.tsv": io.read_categories,
        "x.mtx": io.read_features, "x.mtx.gz": io.read_features, "full.mtx": io.read_features,
        "x.npz": io.read_features, "plain.npz": io.read_features, "x.npy": io.read_features,
        "x.idx": io.read_features, "y.txt": io.read_labels,
    }  # fmt: skip
    if importlib.util.find_spec("onnx"):
        gbdnn.save(net, folder / "net.onnx", "onnx")
        readers["net.onnx"] = gbdnn.load
    if importlib.util.find_spec("torch"):
        gbdnn.save(gbdnn.Network([gbdnn.Layer(A, 0.5)]), folder / "net.pt", "torch", lossy=True)
        readers["net.pt"] = partial(gbdnn.load, activation="relu")
    found = [(folder / name, folder / name, read) for name, read in readers.items()]
    y, path = np.arange(12) % 12, folder / "checkpoint"
    run = gbdnn.train(net, A, y, epochs=1, checkpoint=path)
    found.append((path, path, lambda path: _again(net, A, y, path)))
    gbdnn.save(net, folder / "net")
    io.write_features(X, folder / "features")
    gbdnn.training.write_run(run, folder / "run")
    for name, read in (
        ("net", _loaded), ("features", io.read_features), ("run", gbdnn.training.read_run),
    ):  # fmt: skip
        files = [each for each in (folder / name).rglob("*") if each.is_file()] or [folder / name]
        found += [(folder / name, file, read) for file in files]
    return found


def _again(net, X, y, path):
    return gbdnn.train(net, X, y, epochs=2, checkpoint=path)


def _loaded(path):
    """Read a network in full, and lazily."""
    list(gbdnn.load(path, lazy=True))
    return gbdnn.load(path)


def damaged(data, rng):
    """Return bytes with one to four changes."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at, to = sorted(rng.integers(0, len(data) + 1, 2))
        few = min(to, at + int(rng.integers(1, 9)))
        match rng.choice([0, 1, 2, 3, 4, 4, 4]):
            case 0:
                data = data[:at] + rng.bytes(few - at) + data[few:]
            case 1:
                data = data[:at] + rng.bytes(int(rng.integers(1, 9))) + data[at:]
            case 2:
                data = data[:at] + data[few if rng.random() < 0.5 else to :]
            case 3:
                data = data[:to] + data[at:to] + data[to:]
            case _:  # a digit of a text or a header
                digits = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
                if digits:
                    k = digits[rng.integers(0, len(digits))]
                    data = data[:k] + bytes([48 + rng.integers(0, 10)]) + data[k + 1 :]
    return data


def part(seed):
    """Run the cases of one process: print each of them, and those that end in other errors."""
    rng = np.random.default_rng(seed)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        files = made(Path(name))
        for case in range(PART):
            path, file, read = files[rng.integers(0, len(files))]
            good = file.read_bytes()
            file.write_bytes(damaged(good, rng))
            faulthandler.dump_traceback_later(60, exit=True)
            print(f"seed {seed}, case {case}: {file.relative_to(name)}", flush=True)
            try:
                read(path)
            except gbdnn.GbdnnError:
                pass
            except Exception as error:
                print(f"WRONG {type(error).__name__}: {error}")
            file.write_bytes(good)


def main(cases=20_000, first=0):
    wrong = 0
    for seed in range(int(first), int(first) + -(-int(cases) // PART)):
        command = [sys.executable, "-X", "faulthandler", __file__, "part", str(seed)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        lines = done.stdout.splitlines()
        for before, line in itertools.pairwise(lines):
            if line.startswith("WRONG"):
                wrong += 1
                print(before, line, sep="\n", flush=True)
        if done.returncode:
            wrong += 1
            print(f"exit code {done.returncode}: {lines[-1]}", flush=True)
    print(f"{cases} cases, {wrong} wrong")


if __name__ == "__main__":
    if sys.argv[1:2] == ["part"]:
        part(int(sys.argv[2]))
    else:
        main(*sys.argv[1:])
