"""The machine and the versions that a measurement was made with."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

import numpy as np

from gbdnn._version import __version__
from gbdnn.runtime.cores import cores
from gbdnn.runtime.first_use import gb


def machine() -> dict[str, str | int | float | None]:
    """Describe this machine.

    Returns
    -------
    dict
        ``processor``, ``cores`` available to this process, ``memory_gib`` and ``system``.
    """
    return {
        "processor": _processor(),
        "cores": cores(),
        "memory_gib": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str]:
    """List the versions of Python, gbdnn and the libraries that do the arithmetic.

    Returns
    -------
    dict
        Version by name.
    """
    return {
        "python": platform.python_version(),
        "gbdnn": __version__,
        "python-graphblas": gb.__version__,
        "SuiteSparse:GraphBLAS": ".".join(map(str, gb.ss.about["library_version"])),
        "numpy": np.__version__,
    }


def _processor() -> str:
    """Return the processor's model name, as reported by the operating system."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    if platform.system() == "Darwin":
        sysctl = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"],
            capture_output=True,
            text=True,
            check=False,
        )
        if sysctl.returncode == 0:
            return sysctl.stdout.strip()
    return platform.processor() or platform.machine() or "unknown"


def _memory() -> float:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return round(pages * size / 2**30, 1)
