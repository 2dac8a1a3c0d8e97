"""Processors and their order, by folders as the kernel has them."""

from gbdnn.arrays.checks import require_room
from gbdnn.runtime import topology
from gbdnn.runtime.topology import described, ordered, physical_cores


def kernel(folder, cpus):
    """Write the kernel's files of processors: node, package and core of each."""
    for cpu, (node, package, core) in cpus.items():
        place = folder / f"cpu{cpu}" / "topology"
        place.mkdir(parents=True)
        (place / "physical_package_id").write_text(f"{package}\n")
        (place / "core_id").write_text(f"{core}\n")
        (place.parent / f"node{node}").mkdir()
    return folder


def test_physical_cores_come_first_node_by_node(tmp_path):
    """Two nodes of two cores, numbered alternately; the second threads of cores are 4 to 7."""
    folder = kernel(tmp_path, {k: (k % 2, k % 2, k % 4 // 2) for k in range(8)})
    assert ordered(range(8), cpus=folder) == [0, 2, 1, 3, 4, 6, 5, 7]
    assert ordered({1, 3, 5, 6}, cpus=folder) == [6, 1, 3, 5]  # of those that the process may use


def test_a_core_has_the_same_number_on_every_socket(tmp_path):
    """One node with two sockets: equal core numbers are different cores."""
    cpus = {0: (0, 0, 0), 1: (0, 0, 0), 2: (0, 1, 0), 3: (0, 1, 0)}
    assert ordered(range(4), cpus=kernel(tmp_path, cpus)) == [0, 2, 1, 3]


def test_without_files_every_processor_is_a_core(tmp_path):
    assert ordered({4, 0, 2}, cpus=tmp_path) == [0, 2, 4]


def test_scattered_threads_take_nodes_in_turns(tmp_path):
    cpus = {k: (k % 4 // 2, k % 4 // 2, k % 2) for k in range(8)}  # second threads are 4 to 7
    folder = kernel(tmp_path, cpus)
    assert ordered(range(8), cpus=folder) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert ordered(range(8), cpus=folder, scatter=True) == [0, 2, 1, 3, 4, 6, 5, 7]


def test_a_machine_is_described_by_its_files(tmp_path, monkeypatch):
    """Two sockets of two cores with two threads each; the process may use all but one."""
    folder = kernel(tmp_path, {k: (k // 4, k // 4, k % 2) for k in range(8)})
    monkeypatch.setattr(topology, "usable", lambda: {0, 1, 2, 3, 4, 6, 7})
    monkeypatch.setattr(topology, "_CPUS", folder)
    monkeypatch.setattr(topology, "cores", lambda limited=True: 3 if limited else 7)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    monkeypatch.setenv("SECRET", "hidden")
    caches = (1, "Data", "48K", "0,2"), (3, "Unified", "8M", "0-3")
    for at, (level, kind, size, shared) in enumerate(caches):
        cache = folder / "cpu0" / "cache" / f"index{at}"
        cache.mkdir(parents=True)
        for name, text in (
            ("level", level), ("type", kind), ("size", size), ("shared_cpu_list", shared),
        ):  # fmt: skip
            (cache / name).write_text(f"{text}\n")
    found = described(folder)
    wanted = {
        "cores": 3, "sockets": 2, "physical_cores": 4, "threads_per_core": 2, "numa_nodes": 2,
        "affinity": "0-4,6-7", "governor": None, "quota": 3,
        "caches": {"L1 Data": "48K, processors 0,2", "L3 Unified": "8M, processors 0-3"},
    }  # fmt: skip
    assert {name: found[name] for name in wanted} == wanted
    assert found["settings"]["OMP_WAIT_POLICY"] == "passive"
    assert "SECRET" not in found["settings"]
    assert physical_cores() == 3  # no more than the quota


def test_what_the_system_does_not_tell_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(topology, "usable", set)
    monkeypatch.setattr(topology, "cores", lambda limited=True: 5)
    monkeypatch.delattr("os.sysconf")
    found = described(tmp_path)
    require_room(2**60, "more than any machine has")  # is then not refused beforehand
    for name in (
        "memory_gib", "sockets", "physical_cores", "threads_per_core", "numa_nodes", "affinity",
        "caches", "governor", "quota",
    ):  # fmt: skip
        assert found[name] is None, name
    assert found["cores"] == physical_cores() == 5
