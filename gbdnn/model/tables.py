"""Tables of networks, plans and runs, as text and as HTML for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Table"]


class Table(NamedTuple):
    """A title, rows of cells below a header, and notes by name."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    notes: Mapping[str, str] = {}

    def __str__(self) -> str:
        cells = [[str(cell) for cell in row] for row in (self.header, *self.rows)]
        wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
        right = [name == "edges" or name.endswith("ms") for name in self.header]
        lines = [
            "  ".join(
                x.rjust(n) if last else x.ljust(n)
                for x, n, last in zip(row, wide, right, strict=True)
            )
            for row in cells
            if self.rows
        ]
        name = max(map(len, self.notes), default=0)
        lines += [f"{each:<{name}}  {text}" for each, text in self.notes.items()]
        return "\n  ".join([self.title, *(line.rstrip() for line in lines)])

    def html(self) -> str:
        """Return the table as HTML."""

        def row(cells: Sequence[Any], kind: str = "td") -> str:
            return f"<tr>{''.join(f'<{kind}>{escape(str(each))}</{kind}>' for each in cells)}</tr>"

        body = "".join(map(row, self.rows))
        notes = "".join(f"<li>{escape(k)}: {escape(text)}</li>" for k, text in self.notes.items())
        head = row(self.header, "th") if self.rows else ""
        return f"<p>{escape(self.title)}</p><table>{head}{body}</table><ul>{notes}</ul>"
