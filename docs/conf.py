"""Sphinx's settings: ``python -m sphinx -nW --keep-going docs docs/_build`` builds these pages."""

import ast
import os
import re
import sys
from pathlib import Path

from sphinx.ext.autodoc.mock import mock

import gbdnn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import notebook_runs  # noqa: E402

with mock(["torch"]):  # the pages are the same with and without PyTorch
    import gbdnn.torch

project = "gbdnn"
author = "The gbdnn developers"
project_copyright = "the gbdnn developers"
version = release = gbdnn.__version__

extensions = [
    "mathml",
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
]
# Files that the build itself writes are not pages.
exclude_patterns = [
    "_build",
    "_generated",
    "_templates",
    ".jupyter_cache",
    "jupyter_execute",
]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

# A name in single backticks becomes a link if it is public, and emphasised text if not.
default_role = "autolink"
add_module_names = False
autodoc_typehints = "none"  # the docstrings say more: shapes, units
autodoc_member_order = "bysource"
# One page per public object. Two names differ only in case, which some file systems ignore.
numpydoc_show_class_members = False

# The pages build without a network, so no inventories are fetched and names of other packages are
# plain text.
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|scipy|graphblas|torch|onnx)(\..*)?"),
    (r"py:.*", r"(collections\.abc|typing)\..*"),
    # attributes named in the description of another attribute
    (r"py:obj", r"deduplicate|alive|begin|end|every|factor"),
    # parameters of estimators, which are attributes of their classes, too
    (r"py:obj", r"epochs|warm_start|class_weight"),
    # attributes of estimators, described in the docstrings of the estimators
    (r"py:obj", r"\w+_"),
]

# Notebooks are shown with their stored outputs; a test compares outputs and sources.
nb_execution_mode = "off"
nb_merge_streams = True
os.environ.pop("GBDNN_DATA", None)  # use only data that everyone has

html_theme = "pydata_sphinx_theme"
html_title = "gbdnn"
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["own.css"]
html_show_sourcelink = False
# Pages without subpages have no left sidebar.
ALONE = "index tutorial graph how-it-works when-to-use comparison results training papers"
ALONE += " benchmarks architecture modules store glossary scaling changelog upstream"
html_sidebars = {name: [] for name in [*ALONE.split(), "genindex", "py-modindex", "search"]}
# The copy button leaves out prompts.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme_options = {
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,  # up to "When to use it"
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


# Pages of public names.
PAGES = "gbdnn io training sklearn gallery graph challenge distributed torch viz"
PAGES += " thread_scaling errors"


def setup(app):
    """Generate what the pages include."""
    app.connect("builder-inited", lambda _: _generate())
    app.connect("missing-reference", _public_name)


def _generate():
    generated = HERE / "_generated"
    generated.mkdir(exist_ok=True)
    notebook_runs.copy()
    (generated / "modules.md").write_text(_modules(), encoding="utf-8")
    (generated / "api.rst").write_text(_public_names(), encoding="utf-8")


def _modules():
    """Return the modules of every subpackage with the first lines of their docstrings."""
    text = ""
    package = HERE.parent / "gbdnn"
    for folder in sorted(file.parent for file in package.glob("*/__init__.py")):
        text += (
            f"\n## {folder.name}\n\n{_summary(folder / '__init__.py')}\n\n| module | |\n|---|---|\n"
        )
        for file in sorted(folder.rglob("*.py")):
            if file.name != "__init__.py":
                text += f"| `{file.relative_to(folder).as_posix()}` | {_summary(file)} |\n"
    return text


def _summary(file):
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    return " ".join(text.split("\n\n")[0].split())


def _public_names():
    """Return one table of public names per module, from the modules' pages."""
    parts = []
    for page in PAGES.split():
        text = (HERE / "api" / f"{page}.rst").read_text(encoding="utf-8")
        module = re.search(r"currentmodule:: (\S+)", text)[1]
        blocks = re.findall(r"autosummary::\n(?:   :.*\n)*\n((?:   .+\n)+)", text)
        names = "".join(blocks)
        parts.append(f"{module}\n{'-' * len(module)}\n\n")
        parts.append(
            f".. currentmodule:: {module}\n\n.. autosummary::\n   :nosignatures:\n\n{names}\n"
        )
    return "".join(parts)


def _public_name(app, env, node, contnode):
    """Resolve a bare name in a docstring to the public name of another module."""
    target = node.get("reftarget")
    for page in PAGES.split():
        module = gbdnn if page == "gbdnn" else getattr(gbdnn, page)
        if target in module.__all__:
            domain, full = env.get_domain("py"), f"{module.__name__}.{target}"
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, "obj", full, node, contnode
            )
    return None
