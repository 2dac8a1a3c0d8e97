"""Equations as MathML, which browsers draw themselves: no script, no fonts, no network.

A Sphinx extension around latex2mathml, a small package in pure Python. MathJax would be fetched
from a server by every reader, images of equations need LaTeX at the build, KaTeX needs Node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils.nodes import SkipNode
from latex2mathml.converter import convert

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator


def _inline(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append(convert(node.astext()))
    raise SkipNode


def _block(writer: HTML5Translator, node: nodes.Element) -> None:
    writer.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>\n')
    raise SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
