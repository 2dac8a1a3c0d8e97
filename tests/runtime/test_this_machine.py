"""What the system tells of a machine, and what follows from it."""

import sys

import pytest
from machines import MACHINES

from gbdnn.kernels import costs
from gbdnn.runtime import machine as module
from gbdnn.runtime.machine import machine, processor_name

X86 = """processor\t: 0
model name\t: Some {n} Processor
flags\t\t: fpu sse2 avx2 {flags}

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


class Features(dict):
    """What LLVM says of a processor."""

    def flatten(self):
        return ",".join(f"{'+' if there else '-'}{name}" for name, there in self.items())


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Write what a Linux system on x86-64 says."""
    monkeypatch.setattr(module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(module, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(module, "_CACHES", tmp_path / "cache")
    monkeypatch.setattr(module, "_current", None)
    module._cpuinfo.cache_clear()
    yield tmp_path
    module._cpuinfo.cache_clear()


@pytest.mark.parametrize(
    ("flags", "expected"), [("fma", "AVX2"), ("avx512f avx512dq", "AVX-512"), ("avx512fp", "AVX2")]
)
def test_name_and_vectors_are_those_of_the_first_processor(system, flags, expected):
    (system / "cpuinfo").write_text(X86.format(n=7, flags=flags))
    assert processor_name() == "Some 7 Processor"
    assert machine().vectors == expected


@pytest.mark.parametrize(
    ("name", "vectors"), [("arm64", "NEON"), ("aarch64", "NEON"), ("ppc64le", "AVX2")]
)
def test_architectures_other_than_x86_have_fused_multiply_adds(system, name, vectors, monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: name)
    monkeypatch.setattr(module.platform, "processor", lambda: "")
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", Features)
    assert machine().vectors == vectors
    assert machine().has_fma
    assert processor_name() == name


@pytest.mark.parametrize("has_fma", [True, False])
def test_old_processors_of_x86_have_none(system, has_fma, monkeypatch):
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_features", lambda: Features(fma=has_fma))
    assert machine().has_fma == has_fma


def test_a_system_that_is_silent(system):
    assert machine().vectors == "AVX2"
    assert machine().caches == module._USUAL


def write_caches(system, *kinds):
    for number, (level, kind, size) in enumerate(kinds):
        folder = system / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")


@pytest.mark.parametrize(
    ("third", "expected"),
    [(("3", "Unified", "30M"), 30 << 20), (("3", "Unified", "much"), 2 << 20)],
)
def test_caches(system, third, expected):
    """A missing third level has the size of the second."""
    first = ("1", "Data", "48K"), ("1", "Instruction", "32K")
    write_caches(system, *first, ("2", "Unified", "2M"), third)
    assert machine().caches == (48 << 10, 2 << 20, expected)


def test_a_machine_without_llvmlite(system, monkeypatch):
    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    found = machine()
    assert (found.cpu, found.features, found.has_fma) == ("", "", True)


def test_it_is_read_once(system):
    found = machine()
    (system / "cpuinfo").write_text(X86.format(n=7, flags="avx512f"))
    assert machine() is found


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_its_constants(name, on):
    on(name)
    assert costs.speeds() is costs.SPEEDS[MACHINES[name].vectors]
    for edges, nrows in ((10**6, 4096), (10**4, 100)):
        rows = costs.panel_rows(edges, nrows, 1024)
        assert rows == nrows or 128 <= rows <= 512
