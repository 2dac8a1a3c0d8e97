"""What the system tells of a processor, and what follows from it."""

import pytest

from gbdnn.kernels import costs
from gbdnn.runtime import processor

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
    monkeypatch.setattr(processor.platform, "system", lambda: "Linux")
    monkeypatch.setattr(processor.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(processor, "_CACHES", tmp_path / "cache")
    processor._cpuinfo.cache_clear()
    yield tmp_path
    processor._cpuinfo.cache_clear()


@pytest.mark.parametrize(
    ("flags", "expected"), [("fma", "AVX2"), ("avx512f avx512dq", "AVX-512"), ("avx512fp", "AVX2")]
)
def test_name_and_vectors_are_those_of_the_first_processor(system, flags, expected):
    (system / "cpuinfo").write_text(X86.format(n=7, flags=flags))
    assert processor.name() == "Some 7 Processor"
    assert processor.vectors() == expected


@pytest.mark.parametrize("machine", ["arm64", "aarch64"])
def test_arm(system, machine, monkeypatch):
    monkeypatch.setattr(processor.platform, "machine", lambda: machine)
    monkeypatch.setattr(processor.platform, "processor", lambda: "")
    assert processor.vectors() == "NEON"
    assert processor.name() == machine


def test_a_system_that_is_silent(system):
    assert processor.vectors() == "AVX2"
    assert processor.cache_bytes(1, 123) == 123


def test_caches(system):
    kinds = [("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2M")]
    for number, (level, kind, size) in enumerate(kinds):
        folder = system / "cache" / f"index{number}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("type", kind), ("size", size)):
            (folder / name).write_text(text + "\n")
    assert processor.cache_bytes(1, 0) == 48 << 10
    assert processor.cache_bytes(2, 0) == 2 << 20
    assert processor.cache_bytes(3, 5) == 5
    (system / "cache" / "index2" / "size").write_text("much\n")
    assert processor.cache_bytes(2, 7) == 7


def test_every_kind_of_vectors_has_its_constants():
    assert costs.MACHINE is costs.MACHINES[processor.vectors()]
    assert set(costs.MACHINES) == {"AVX2", "AVX-512", "NEON"}
