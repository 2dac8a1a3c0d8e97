"""ThreadSanitizer finds no race in the compiled loops: random networks on one thread and on four.

    python tests/stress/races.py

needs the package ``ziglang`` (Debian's clang 14 is too old). The programs end with "equal answers",
or with a report.
"""

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMPILED = HERE.parents[1] / "gbdnn" / "kernels" / "compiled"
OPTIONS = "-std=c11", "-g", "-O1", "-ffp-contract=off", "-fsanitize=thread", "-mcpu=x86_64_v3"
DTYPES = runpy.run_path(str(COMPILED / "build.py"))["DTYPES"]
# A file, an atomic addition in it, and one that is not atomic.
PLANTED = {
    "races.c": (
        "equal.c", "atomic_add(run->multiplicity + leader, ", "(run->multiplicity[leader] += ",
    ),
    "loops.c": ("loop.c", "atomic_add(state + HELD, ", "(state[HELD] += "),
}  # fmt: skip


def run(program: str, dtype: str, *, planted: bool = False) -> tuple[int, str]:
    """Build and run a program; return its status and what it printed."""
    real, bits = DTYPES[dtype]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in (*COMPILED.glob("*.[ch]"), HERE / program):
            text, (file, plain, race) = path.read_text(), PLANTED[program]
            if planted and path.name == file:
                assert plain in text
                text = text.replace(plain, race)
            (folder / path.name).write_text(text)
        command = [
            *(sys.executable, "-m", "ziglang", "cc", *OPTIONS, f"-I{folder}", f"-I{HERE}"),
            *(f"-DREAL={real}", f"-DBITS={bits}", "-DPAIR_LINES=2"),
            *map(str, sorted(folder.glob("*.c"))),
            *("-lm", "-lpthread", "-o", str(folder / "program")),
        ]
        subprocess.run(command, check=True)
        done = subprocess.run([folder / "program"], capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main():
    for program in PLANTED:
        for dtype in DTYPES:
            status, printed = run(program, dtype)
            sys.stdout.write(f"{program}, {dtype}: {printed}")
            if status:
                sys.exit(status)


if __name__ == "__main__":
    main()
