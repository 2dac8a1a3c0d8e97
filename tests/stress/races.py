"""ThreadSanitizer finds no race in the compiled run: random networks on one thread and on four.

    python tests/stress/races.py

needs the package ``ziglang``; the program ends with "equal answers", or with a report.
"""

import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMPILED = HERE.parents[1] / "gbdnn" / "kernels" / "compiled"
OPTIONS = "-std=c11", "-g", "-O1", "-ffp-contract=off", "-fsanitize=thread", "-mcpu=x86_64_v3"


def main():
    dtypes = runpy.run_path(str(COMPILED / "build.py"))["DTYPES"]
    for real, bits in dtypes.values():
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "races"
            command = [
                *(sys.executable, "-m", "ziglang", "cc", *OPTIONS, f"-I{COMPILED}"),
                *(f"-DREAL={real}", f"-DBITS={bits}", "-DPAIR_LINES=2"),
                *(str(HERE / "races.c"), *map(str, sorted(COMPILED.glob("*.c")))),
                *("-lm", "-lpthread", "-o", str(program)),
            ]
            subprocess.run(command, check=True)
            subprocess.run([program], check=True)


if __name__ == "__main__":
    main()
