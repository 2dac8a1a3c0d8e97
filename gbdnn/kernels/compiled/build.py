"""Compile the kernels for each level of vector instructions.

    python gbdnn/kernels/compiled/build.py

makes the libraries of this platform in the folder of the sources, for a checkout that is used in
place, and the declarations of their structures and functions (cffi's out-of-line ABI mode). The
build of a wheel calls `build` for its own platform. The compiler is that of the package
``ziglang``, which needs no other compiler or headers, and makes code for other platforms, too.

This file imports nothing of gbdnn, whose dependencies a build lacks.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import platform
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
DTYPES = {"float32": ("float", "uint32_t"), "float64": ("double", "uint64_t")}
OPTIONS = (
    *("-std=c11", "-O3", "-ffp-contract=off", "-fno-math-errno", "-fomit-frame-pointer"),
    *("-shared", "-fPIC", "-fvisibility=hidden", "-s", "-Wall", "-Wextra"),
)


class Level(NamedTuple):
    """A kind of processor: the compiler's names, and the cache lines of the widest paired tile."""

    target: str
    cpu: str
    pair_lines: int
    options: tuple[str, ...] = ()


def _x86_64(target: str) -> dict[str, Level]:
    return {
        # The compiler would divide vectors of a cache line into halves.
        "AVX-512": Level(target, "x86_64_v4", 4, ("-mprefer-vector-width=512",)),
        "AVX2": Level(target, "x86_64_v3", 2),
        "": Level(target, "x86_64", 2),
    }


# Levels by the tag of a wheel, the best one first; the last one is for the loops of GraphBLAS calls
# on any processor. With AVX-512 there are 32 registers of a cache line, otherwise fewer or smaller
# ones.
PLATFORMS = {
    "manylinux_2_28_x86_64": _x86_64("x86_64-linux-gnu.2.28"),
    "musllinux_1_2_x86_64": _x86_64("x86_64-linux-musl"),
    "win_amd64": _x86_64("x86_64-windows-gnu"),
    "manylinux_2_28_aarch64": {"NEON": Level("aarch64-linux-gnu.2.28", "generic", 2)},
    "macosx_11_0_arm64": {"NEON": Level("aarch64-macos.11.0", "apple_m1", 2)},
}
# Vector instructions and what the compiler uses with them, by its names.
_AVX2 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
_FEATURES = {
    "x86_64_v3": _AVX2,
    "x86_64_v4": (*_AVX2, "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def this_platform() -> str:
    """Return the tag of this machine's wheels, which may have no libraries."""
    linux = "manylinux_2_28" if platform.libc_ver()[0] == "glibc" else "musllinux_1_2"
    systems = {"Linux": linux, "Darwin": "macosx_11_0", "Windows": "win"}
    return f"{systems.get(platform.system(), 'other')}_{platform.machine()}".lower()


def sources() -> list[Path]:
    """Return the C files."""
    return sorted(HERE.glob("*.c"))


def file_name(level: Level, dtype: str) -> str:
    """Return the name of a library, with a hash of its sources and of how they are compiled."""
    texts = [file.read_bytes() for file in (*sources(), *sorted(HERE.glob("*.h")))]
    texts += [repr((OPTIONS, level, DTYPES[dtype])).encode()]
    digest = hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]
    return f"{level.cpu}-{dtype}-{digest}.{'dll' if 'windows' in level.target else 'so'}"


def declarations(folder: Path, dtype: str) -> Path:
    """Return the path of a dtype's declarations in a folder, with a hash of the headers.

    cffi makes them from those headers that contain nothing else, unless they are there. The file
    contains the arguments in the module that cffi writes: Python reads them in a hundredth of the
    time that it needs for the module's text.
    """
    headers = [HERE / name for name in ("graphblas.h", "shared.h", "loops.h")]
    text = "".join(header.read_text("utf-8") for header in headers)
    text = f"typedef {DTYPES[dtype][0]} real;{text}"
    path = folder / f"{dtype}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.pickle"
    if not path.exists():
        from cffi import FFI

        folder.mkdir(exist_ok=True)
        ffi = FFI()
        ffi.cdef(re.sub(r"^#.*|^EXPORT ", "", text, flags=re.MULTILINE))
        ffi.set_source("declarations", None)
        made = path.with_suffix(f".{os.getpid()}")
        with redirect_stdout(None):
            ffi.emit_python_code(str(made))
        arguments = made.read_text("utf-8").partition(",")[2]
        made.write_bytes(pickle.dumps(eval(f"dict({arguments}")))  # noqa: S307
        made.replace(path)
    return path


def command(level: Level, dtype: str, out: Path, *options: str) -> list[str]:
    """Return the command that compiles a library."""
    target, cpu, pair_lines, more = level
    real, bits = DTYPES[dtype]
    if "windows" in target:
        # The compiler would compile a C runtime for each -mcpu=. Nothing links to the library.
        wanted = ["-target-cpu", cpu.replace("_", "-")]
        for name in _FEATURES.get(cpu, ()):
            wanted += ["-target-feature", f"+{name}"]
        more += (*(x for each in wanted for x in ("-Xclang", each)), f"-Wl,--out-implib,{out}.lib")
        cpu = "x86_64"
    return [
        *(sys.executable, "-m", "ziglang", "cc", *OPTIONS, "-target", target, f"-mcpu={cpu}"),
        *(f"-DREAL={real}", f"-DBITS={bits}", f"-DPAIR_LINES={pair_lines}", *more, *options),
        *(*map(str, sources()), "-lm", "-o", str(out)),
    ]


def build(
    folder: Path, levels: Iterable[Level], dtypes: Iterable[str] = tuple(DTYPES)
) -> list[Path]:
    """Compile libraries into a folder, unless they are there; return their paths.

    With them come the declarations, which do not depend on a level.

    Raises
    ------
    RuntimeError
        A file does not compile, or the package ziglang is missing.
    """
    import subprocess

    folder.mkdir(exist_ok=True)

    def compiled(level: Level, dtype: str) -> Path:
        path = folder / file_name(level, dtype)
        if not path.exists():
            made = path.with_suffix(".new")
            done = subprocess.run(command(level, dtype, made), capture_output=True, text=True)  # noqa: S603
            if done.returncode:
                raise RuntimeError(f"cannot compile the kernels for {level.cpu}:\n{done.stderr}")
            Path(f"{made}.lib").unlink(missing_ok=True)
            made.replace(path)
        return path

    wanted = [(level, dtype) for level in levels for dtype in dtypes]
    with ThreadPoolExecutor(2) as threads:
        made = list(threads.map(lambda each: compiled(*each), wanted))
    return made + [declarations(folder, dtype) for dtype in dtypes]


if __name__ == "__main__":
    folder = HERE / "libraries"
    made = build(folder, PLATFORMS.get(this_platform(), {}).values())
    for old in {*folder.iterdir()} - {*made}:
        old.unlink()
