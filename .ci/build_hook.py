"""Puts the intermediate code of the compiled kernels into a wheel, where the hook is enabled.

    HATCH_BUILD_HOOKS_ENABLE=1 python -m build

Without it, and on other platforms than the builder's, numba makes the code at the first use.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WRITE = """
import lzma, sys
from pathlib import Path
from gbdnn.kernels.compiled.functions import libraries

lines = int(sys.argv[2])
for library in libraries():
    code = library.intermediate(lines).encode()
    Path(sys.argv[1], library.intermediate_name(lines)).write_bytes(lzma.compress(code))
"""


class IntermediateCode(BuildHookInterface):
    """Before LLVM's passes, which then run for the user's processor."""

    def initialize(self, version, build_data):
        """Write the files and name them to the builder."""
        if version == "editable":
            return
        self.folder = TemporaryDirectory()
        environment = os.environ | {"PYTHONPATH": self.root}
        processes = [
            subprocess.Popen(  # noqa: S603
                [sys.executable, "-c", WRITE, self.folder.name, lines], env=environment
            )
            for lines in ("2", "4")  # with AVX2, with AVX-512
        ]
        codes = [process.wait() for process in processes]
        if any(codes):
            raise RuntimeError("cannot make the intermediate code of the kernels")
        for file in Path(self.folder.name).iterdir():
            place = f"gbdnn/kernels/compiled/intermediate/{file.name}"
            build_data["force_include"][str(file)] = place

    def finalize(self, version, build_data, artifact_path):
        """Remove the files."""
        if version != "editable":
            self.folder.cleanup()
