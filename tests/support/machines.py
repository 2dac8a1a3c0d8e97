"""Machines on which people run gbdnn, as data: tests make choices for all of them on any one."""

import os
from contextlib import AbstractContextManager
from typing import NamedTuple
from unittest.mock import patch

from gbdnn.runtime import machine as machine_module
from gbdnn.runtime.machine import Machine
from gbdnn.runtime.machine import machine as this_machine

KIB, MIB = 1 << 10, 1 << 20


class Kind(NamedTuple):
    vectors: str
    caches: tuple[int, int, int]
    cores: int


MACHINES = {
    "Zen 3, 16 cores": Kind("AVX2", (32 * KIB, 512 * KIB, 32 * MIB), 16),
    "Zen 4, 2 cores": Kind("AVX-512", (32 * KIB, 1 * MIB, 32 * MIB), 2),
    "Zen 5, 8 cores": Kind("AVX-512", (48 * KIB, 1 * MIB, 32 * MIB), 8),
    "Zen 5c, 192 cores": Kind("AVX-512", (48 * KIB, 1 * MIB, 512 * MIB), 192),
    "Sapphire Rapids, 64 cores": Kind("AVX-512", (48 * KIB, 2 * MIB, 480 * MIB), 64),
    "Alder Lake, 6 cores": Kind("AVX2", (48 * KIB, 1280 * KIB, 18 * MIB), 6),
    "Haswell laptop": Kind("AVX2", (32 * KIB, 256 * KIB, 3 * MIB), 2),
    "Apple M": Kind("NEON", (128 * KIB, 12 * MIB, 12 * MIB), 4),
    "Apple M, large": Kind("NEON", (192 * KIB, 16 * MIB, 16 * MIB), 12),
    "Graviton 3": Kind("NEON", (64 * KIB, 1 * MIB, 32 * MIB), 64),
    "container, one core": Kind("AVX-512", (32 * KIB, 1 * MIB, 32 * MIB), 1),
}


def named(name: str) -> Machine:
    """Return a machine with the properties of `name`, and kernels that this processor runs."""
    vectors, caches, cores = MACHINES[name]
    return this_machine()._replace(vectors=vectors, caches=caches, cores=cores)


IS_AVX2 = "GBDNN_TEST_AVX2" in os.environ
if IS_AVX2:  # also where there is AVX-512
    machine_module._current = named("Zen 3, 16 cores")._replace(level="AVX2")


def using(name: str) -> AbstractContextManager[object]:
    """Make choices for another machine in a ``with`` block."""
    return patch.object(machine_module, "_current", named(name))
