"""What commands say: facts, a line each, and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gbdnn.io import whole_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gbdnn.challenge import Outcome

__all__ = ["in_bytes", "lines", "outcome_facts", "write_json"]


def lines(facts: Mapping[str, object]) -> str:
    """Return facts for people: a line per fact."""
    return "\n".join(f"{name:<11} {value}" for name, value in facts.items())


def write_json(found: dict[str, Any], path: Path) -> None:
    """Write facts for programs; the file appears whole or not at all."""
    with whole_file(path) as file:
        file.write((json.dumps(found, indent=2) + "\n").encode())


def in_bytes(size: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << power:
            return f"{size / (1 << power):.4g} {unit}"
    return f"{size} bytes"


def outcome_facts(outcome: Outcome) -> dict[str, str]:
    """Return what running a challenge problem gave."""
    problem, machine, versions = outcome.problem, outcome.machine, outcome.versions
    edges = problem.network.edges
    runs = "" if len(outcome.seconds) == 1 else f", median of {len(outcome.seconds)} runs"
    facts = {
        "problem": problem.name,
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "threads": f"{outcome.nthreads}",
        "engine": outcome.engine,
        "edges": f"{edges:,} (x {problem.inputs:,} inputs = {edges * problem.inputs:.4g})",
        "seconds": f"{outcome.seconds_median:.3f}{runs}",
        "edge rate": _rate(outcome),
        "categories": f"{len(outcome.categories):,}",
        "check": outcome.check,
    }
    if outcome.truth is not None:
        facts["check"] += f" (against {outcome.checked_against})"
    return facts


def _rate(outcome: Outcome) -> str:
    """Return the edge rate; a compressed run's is effective, with the real number beside it."""
    if outcome.processed is None:
        return f"{outcome.edge_rate:.4g} edges/s"
    real = outcome.processed / outcome.seconds_median
    return (
        f"{outcome.edge_rate:.4g} edges/s EFFECTIVE: equal inputs went on as one;"
        f" really processed {outcome.processed:.4g} edges, {real:.4g} edges/s"
    )
