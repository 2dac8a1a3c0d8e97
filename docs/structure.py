"""The rooms of gbdnn and their imports, read from the code when the pages are built.

    python docs/structure.py FOLDER

A room is a folder below ``gbdnn/`` with all its modules, a module next to the folders,
or ``gbdnn/__init__.py``. Its floor is the length of the longest chain of imports below it.
"""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Literal, NamedTuple

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path as Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.axes import Axes

PACKAGE = Path(__file__).parent.parent / "gbdnn"

Kind = Literal["module", "function", "types"]
"""Where an import stands: at module level, in a function, or under TYPE_CHECKING."""

LINE, CHAR, GAP, STOREY = 0.16, 0.075, 0.35, 0.42  # inches
WIDEST = 30  # characters of a line of module names
STYLE = {"font.family": "sans-serif", "svg.hashsalt": "gbdnn", "svg.fonttype": "path"}


class Import(NamedTuple):
    """A module of gbdnn that another one imports."""

    module: str
    target: str
    kind: Kind


class Room(NamedTuple):
    """What is in one box of the picture."""

    name: str
    file: Path
    modules: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The first line of its docstring."""
        return _summary(self.file)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder below the package."""
        return self.file.name == "__init__.py" and self.file.parent != PACKAGE

    @property
    def title(self) -> str:
        """As the tree calls it."""
        if self.file.parent == PACKAGE:
            return "gbdnn/__init__.py" if self.name == "gbdnn" else f"{self.name}.py"
        return f"{self.name}/"


def modules() -> dict[str, Path]:
    """Return the file of every module, by its full name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def room_of(module: str) -> str:
    """Return the room that a module is in."""
    return [*module.split("."), "gbdnn"][1]


def rooms() -> dict[str, Room]:
    """Return all rooms by name."""
    inside: dict[str, list[str]] = {}
    for module in modules():
        inside.setdefault(room_of(module), []).append(module)
    found = {}
    for name, names in sorted(inside.items()):
        file = modules()[min(names, key=len)]
        shown = {module.split(".")[2] for module in names if module.count(".") > 1}
        found[name] = Room(name, file, tuple(sorted(shown, key=lambda each: each.lstrip("_"))))
    return found


def imports() -> list[Import]:
    """Return what the modules of gbdnn import of each other."""
    known = modules()
    found = []
    for module, file in known.items():
        for target, kind in _imported(ast.parse(file.read_text(encoding="utf-8")), "module"):
            if target.split(".")[0] == "gbdnn":
                # A name in a module, or a module in a package.
                found.append(Import(module, _longest_known(target, known), kind))
    return found


def _imported(node: ast.AST, kind: Kind) -> Iterator[tuple[str, Kind]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((each.name, kind) for each in child.names)
        elif isinstance(child, ast.ImportFrom):
            if child.level:
                raise ValueError(f"line {child.lineno}: a relative import")
            yield from ((f"{child.module}.{each.name}", kind) for each in child.names)
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from _imported(ast.Module(child.body, []), "types")
            yield from _imported(ast.Module(child.orelse, []), kind)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imported(child, "function" if kind == "module" else kind)
        else:
            yield from _imported(child, kind)


def _longest_known(name: str, known: Iterable[str]) -> str:
    while name not in known:
        name = name.rpartition(".")[0]
    return name


def between_rooms(*kinds: Kind) -> dict[str, set[str]]:
    """Return for each room those that it imports from, by imports of these kinds."""
    found: dict[str, set[str]] = {name: set() for name in rooms()}
    for module, target, kind in imports():
        here, there = room_of(module), room_of(target)
        if kind in kinds and here != there:
            found[here].add(there)
    return found


def floors(graph: dict[str, set[str]]) -> dict[str, int]:
    """Return each room's floor, from 0; a circle raises graphlib.CycleError."""
    found: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        found[name] = 1 + max((found[below] for below in graph[name]), default=-1)
    return found


def tree() -> str:
    """Return the folder as lines of text: its folders and modules."""
    level = floors(between_rooms("module"))
    shown = [room for room in rooms().values() if room.name != "gbdnn"]
    shown.sort(key=lambda room: (-level[room.name], room.name))
    lines = []
    for room in shown:
        lines.append((f"  {room.title}", room.summary))
        for folder in sorted(each for each in room.file.parent.iterdir() if room.is_folder):
            if (folder / "__init__.py").exists():
                lines.append((f"    {folder.name}/", _summary(folder / "__init__.py")))
    wide = max(len(name) for name, _ in lines)
    text = "\n".join(f"{name:{wide}}  {summary}" for name, summary in lines)
    return f"gbdnn/\n{text}\n".replace("``", "`")


def listing() -> str:
    """Return every module of every folder with the first line of its docstring, as a page."""
    level = floors(between_rooms("module"))
    text = ""
    for room in sorted(rooms().values(), key=lambda room: (-level[room.name], room.name)):
        if room.is_folder:
            text += f"\n## {room.name}\n\n{room.summary}\n\n| module | |\n|---|---|\n"
            for file in sorted(room.file.parent.rglob("*.py")):
                if file.name != "__init__.py":
                    name = file.relative_to(room.file.parent).as_posix()
                    text += f"| `{name}` | {_summary(file)} |\n"
    return text


def _summary(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


class Box:
    """A room in the picture; x and y are its middle."""

    def __init__(self, room: Room) -> None:
        self.title, self.is_folder = room.title, room.is_folder
        self.lines = wrap(" ".join(room.modules), WIDEST)
        self.width = 0.3 + CHAR * max(1.35 * len(self.title), *map(len, [*self.lines, ""]))
        self.height = 0.34 + LINE * len(self.lines)
        self.x = self.y = 0.0

    def near(self, x: float) -> float:
        """Return the place on the upper or lower edge that is nearest to `x`."""
        half = self.width / 2 - 0.2
        return min(max(x, self.x - half), self.x + half)

    def draw(self, axes: Axes) -> None:
        """Draw the box with its words."""
        corner = (self.x - self.width / 2, self.y - self.height / 2)
        look = "round,pad=0,rounding_size=0.06"
        grey = "0.95" if self.is_folder else "white"
        axes.add_patch(
            FancyBboxPatch(
                corner, self.width, self.height, boxstyle=look, facecolor=grey, edgecolor="0.3"
            )
        )
        top = self.y + self.height / 2 - 0.17
        middle = {"ha": "center", "va": "center"}
        axes.text(self.x, top, self.title, weight="bold", size=9, **middle)
        for at, line in enumerate(self.lines, 1):
            axes.text(self.x, top - 0.02 - LINE * at, line, size=7, color="0.3", **middle)


def picture() -> Figure:
    """Draw rooms as boxes, floor above floor, and what they import as arrows.

    An import that follows from others has no arrow; private modules, a line each, have no box.
    """
    graph = {
        name: {each for each in below if not each.startswith("_")}
        for name, below in between_rooms("module").items()
        if not name.startswith("_")
    }
    boxes = {name: Box(room) for name, room in rooms().items() if name in graph}
    level = floors(graph)
    chains = _chains(_reduced(graph), level)
    storeys: list[list[str]] = [[] for _ in range(1 + max(level.values()))]
    for name in graph:
        storeys[level[name]].append(name)
    for chain in chains:
        for step, bend in enumerate(chain[1:-1], 1):
            storeys[level[chain[0]] - step].append(bend)
    x = _across(storeys, chains, {name: box.width for name, box in boxes.items()})
    ends: dict[str, tuple[float, float]] = {}
    bottom = 0.0
    for storey in storeys:
        height = max(boxes[name].height for name in storey if name in boxes)
        ends |= dict.fromkeys(storey, (bottom + height, bottom))
        bottom += height + STOREY
    for name, box in boxes.items():
        box.x, box.y = x[name], sum(ends[name]) / 2
    half = {name: boxes[name].width / 2 if name in boxes else 0 for name in x}
    left = min(x[name] - half[name] for name in x) - 0.05
    right = max(x[name] + half[name] for name in x) + 0.05
    top = bottom - STOREY + 0.05
    figure = Figure(figsize=(right - left, top + 0.05))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(left, right), ylim=(-0.05, top))
    axes.axis("off")
    for box in boxes.values():
        box.draw(axes)
    for chain in chains:
        bends = [(x[bend], end) for bend in chain[1:-1] for end in ends[bend]]
        _arrow(axes, boxes[chain[0]], boxes[chain[-1]], bends)
    return figure


def _reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports that do not follow from others."""
    reach: dict[str, set[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        reach[name] = set().union(graph[name], *(reach[below] for below in graph[name]))
    return {
        name: {there for there in below if not any(there in reach[other] for other in below)}
        for name, below in graph.items()
    }


def _chains(graph: dict[str, set[str]], level: dict[str, int]) -> list[list[str]]:
    """Return for each import its rooms, and between them a bend on each floor that it passes."""
    return [
        [here, *(f"{here}>{there}>{at}" for at in range(level[here] - 1, level[there], -1)), there]
        for here in sorted(graph)
        for there in sorted(graph[here])
    ]


def _across(
    storeys: list[list[str]], chains: list[list[str]], widths: dict[str, float]
) -> dict[str, float]:
    """Return where rooms and bends stand on their floors: near those that they are joined to."""
    joined: dict[str, list[str]] = {node: [] for storey in storeys for node in storey}
    for chain in chains:
        for here, there in pairwise(chain):
            joined[here].append(there)
            joined[there].append(here)
    x = {node: 2.0 * at for storey in storeys for at, node in enumerate(storey)}
    for sweep in range(60):
        for storey in storeys if sweep % 2 else storeys[::-1]:
            want = {node: sum(x[n] for n in joined[node]) / len(joined[node]) for node in storey}
            storey.sort(key=lambda node, want=want: want[node])
            # Side by side without overlap, and the floor's middle where it wants to be.
            at = 0.0
            for before, node in zip([None, *storey], storey, strict=False):
                if before is not None:
                    gap = (widths.get(before, 0) + widths.get(node, 0)) / 2 + GAP
                    at = max(at + gap, want[node] - want[storey[0]])
                x[node] = at
            shift = sum(want[node] - x[node] for node in storey) / len(storey)
            x |= {node: x[node] + shift for node in storey}
    return x


def _arrow(axes: Axes, here: Box, there: Box, bends: list[tuple[float, float]]) -> None:
    start = here.near(bends[0][0] if bends else there.x)
    end = there.near(bends[-1][0] if bends else start)
    start = here.near(bends[0][0] if bends else end)
    first, last = here.y - here.height / 2, there.y + there.height / 2
    points = [(start, first), *bends, (end, last)]
    look = {"linewidth": 1.0, "color": "0.3", "shrinkA": 0, "shrinkB": 1}
    path = Line(points)
    axes.add_patch(FancyArrowPatch(path=path, arrowstyle="-|>,head_length=4,head_width=2", **look))


def make(folder: Path) -> None:
    """Write tree, listing and picture."""
    (folder / "tree.txt").write_text(tree(), encoding="utf-8")
    (folder / "modules.md").write_text(listing(), encoding="utf-8")
    with rc_context(STYLE):
        picture().savefig(folder / "structure.svg", metadata={"Date": None})


if __name__ == "__main__":
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    make(target)
