"""Sphinx's settings: ``python -m sphinx -nW --keep-going docs docs/_build`` builds these pages."""

import os
import re
import sys
from pathlib import Path

import gbdnn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import figures  # noqa: E402
import notebook_runs  # noqa: E402
import structure  # noqa: E402

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
# What the build itself leaves in this folder is no page.
exclude_patterns = ["_build", "_generated", "_templates", ".jupyter_cache", "jupyter_execute"]
templates_path = ["_templates"]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

# A name in single backticks is a link where it is one, and emphasised where it is a parameter.
default_role = "autolink"
add_module_names = False
autodoc_typehints = "none"  # the docstrings say more: shapes, units
autodoc_member_order = "bysource"
# A page for each public object. Two differ in case alone, which not every file system tells.
autosummary_filename_map = {"gbdnn.distributed.Balance": "gbdnn.distributed.Balance-record"}
numpydoc_show_class_members = False

# No inventories are fetched, so that the pages build without a network: other packages' names stay
# text.
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|scipy|graphblas|torch|onnx)(\..*)?"),
    (r"py:.*", r"(collections\.abc|typing)\..*"),
    # attributes, named in the description of another one
    (r"py:obj", r"deduplicate|live|begin|end|every|factor"),
    # of estimators, which describe them in their own docstrings
    (r"py:obj", r"(network|history|n_iter)_"),
]

# Notebooks are shown with the outputs that they are kept with; a test compares outputs and sources.
nb_execution_mode = "off"
nb_merge_streams = True
os.environ.pop("GBDNN_DATA", None)  # with what everyone has

html_theme = "pydata_sphinx_theme"
html_title = "gbdnn"
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["own.css"]
html_show_sourcelink = False
# Pages without pages below them: the left bar would be empty.
ALONE = "index tutorial how-it-works when-to-use comparison results training paper papers"
ALONE += " benchmarks architecture modules store glossary scaling changelog upstream"
html_sidebars = {name: [] for name in [*ALONE.split(), "genindex", "py-modindex", "search"]}
# What is copied of a session is what was typed.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_theme_options = {
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}


# Pages of public names.
PAGES = "gbdnn inference serving model io training gallery graph challenge distributed viz errors"


def setup(app):
    """Make figures and tables before the pages are read that show them."""
    app.connect("builder-inited", lambda _: _generate())
    app.connect("missing-reference", _public_name)


def _generate():
    generated = HERE / "_generated"
    generated.mkdir(exist_ok=True)
    notebook_runs.copy()
    figures.make(generated)
    structure.make(generated)
    (generated / "api.rst").write_text(_public_names(), encoding="utf-8")


def _public_names():
    """Return tables of all public names with a line each, from the pages of the modules."""
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
