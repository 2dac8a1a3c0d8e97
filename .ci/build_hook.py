"""Compiles the kernels when the package is built, and names the wheel by its platform.

    python -m build                                            a wheel for this machine
    GBDNN_PLATFORM=manylinux_2_28_aarch64 python -m build      one for another platform

Libraries go next to their sources; an editable installation uses them there. On platforms without
levels the wheel has none, and GraphBLAS's kernels compute.
"""

import os
import runpy
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledKernels(BuildHookInterface):
    """Adds the libraries of one platform to a wheel."""

    def initialize(self, version, build_data):
        """Compile the libraries and name them to the builder."""
        folder = Path(self.root, "gbdnn", "kernels", "compiled")
        compiler = runpy.run_path(str(folder / "build.py"))
        platform = os.environ.get("GBDNN_PLATFORM") or compiler["this_platform"]()
        levels = compiler["PLATFORMS"].get(platform, {})
        made = compiler["build"](folder / "libraries", levels.values())
        for path in made:
            build_data["artifacts"].append(f"/{path.relative_to(self.root)}")
        if levels:
            build_data["tag"] = f"py3-none-{platform}"
            build_data["pure_python"] = False
