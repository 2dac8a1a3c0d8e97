"""What the system tells of a machine, and what follows from it."""

from types import SimpleNamespace

import pytest

from gbdnn.runtime import machine as module
from gbdnn.runtime.machine import machine, processor_name

X86 = """processor\t: 0
model name\t: Some {n} Processor
flags\t\t: fpu sse2 avx2 {flags}

processor\t: 1
model name\t: Another
flags\t\t: fpu
"""


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


AVX2 = "avx bmi1 bmi2 f16c fma abm movbe"
AVX512 = AVX2 + " avx512f avx512bw avx512cd avx512dq avx512vl"


@pytest.mark.parametrize(
    ("flags", "vectors", "level"),
    [
        (AVX2, "AVX2", "AVX2"), (AVX512, "AVX-512", "AVX-512"),
        (AVX2 + " avx512f avx512cd", "AVX2", "AVX2"), ("fma", "AVX2", ""),
    ],
)  # fmt: skip
def test_name_and_vectors_are_those_of_the_first_processor(system, flags, vectors, level):
    """Kernels need all instructions of a level."""
    (system / "cpuinfo").write_text(X86.format(n=7, flags=flags))
    assert processor_name() == "Some 7 Processor"
    assert (machine().vectors, machine().level) == (vectors, level)


@pytest.mark.parametrize(
    ("name", "vectors", "level"),
    [("arm64", "NEON", "NEON"), ("aarch64", "NEON", "NEON"), ("ppc64le", "AVX2", "")],
)
def test_architectures_other_than_x86(system, name, vectors, level, monkeypatch):
    monkeypatch.setattr(module.platform, "machine", lambda: name)
    monkeypatch.setattr(module.platform, "processor", lambda: "")
    assert (machine().vectors, machine().level) == (vectors, level)
    assert processor_name() == name


@pytest.mark.parametrize(
    ("present", "level"), [({40, 41}, "AVX-512"), ({40}, "AVX2"), ({6, 10}, "")]
)
def test_windows_is_asked_for_the_instructions(system, present, level, monkeypatch):
    """By the numbers of PF_AVX2_INSTRUCTIONS_AVAILABLE and PF_AVX512F_INSTRUCTIONS_AVAILABLE."""
    kernel32 = SimpleNamespace(IsProcessorFeaturePresent=lambda number: number in present)
    monkeypatch.setattr(module.ctypes, "windll", SimpleNamespace(kernel32=kernel32), raising=False)
    monkeypatch.setattr(module.platform, "machine", lambda: "AMD64")
    assert machine().level == level


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
