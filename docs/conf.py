"""Settings of Sphinx, which makes HTML of these pages and of docstrings: `make docs`."""

import html
import re
from importlib.metadata import version as installed_version
from pathlib import Path

import click
from docutils import nodes
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]

project = "Magnetar"
version = release = installed_version("magnetar")
copyright = "Apache License 2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
]
# The pages of all folders: links between them lead somewhere in the site, too.
root_doc = "docs/index"
include_patterns = [
    *("docs/**.md", "*.md", "*/README.md", "deploy/**/README.md", "examples/**/README.md"),
    *("benchmarks/RESULTS.md", "benchmarks/peers/README.md"),
]
exclude_patterns = [".*", "**/__pycache__", "build", "dist"]
html_theme = "furo"
# `--tls` stays what it is.
smartquotes = False
html_title = f"Magnetar {release}"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#0b6e99",
        "color-brand-content": "#0b6e99",
    },
    "dark_css_variables": {
        "color-brand-primary": "#5fb8dd",
        "color-brand-content": "#5fb8dd",
    },
}
# What draws the states: `make docs` fetches it.
MERMAID = ROOT / ".venv" / ".docs" / "mermaid.min.js"
html_static_path = [str(MERMAID)] if MERMAID.exists() else []
# It leads from the site's root to its first page.
html_extra_path = ["site"]

# Links go to headings as they do on GitHub.
myst_heading_anchors = 4
# Pages link to files of the project that are not pages: those stay as they are.
suppress_warnings = ["myst.xref_missing"]

autodoc_member_order = "bysource"
# Under Attributes stands what the annotations of a class declare.
napoleon_use_ivar = True
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
autodoc_default_options = {"members": True, "inherited-members": "Exception,Enum,int,str,object"}


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """The pages that the tables of the index link to are the contents, below its headings."""
    if page != root_doc:
        return
    for section in source[0].split("\n## ")[1:]:
        heading, _, text = section.partition("\n")
        rows = re.findall(r"^\| \[([^]]+)\]\(([\w/.-]+)\.md\)", text, re.MULTILINE)
        if rows:
            pages = "\n".join(f"{title} <{page}>" for title, page in rows)
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {heading}\n\n{pages}\n```\n"


def mark_help(app: Sphinx, context: click.Context, lines: list[str]) -> None:
    """Texts of the command line have Markdown's marks; what reads them expects others."""
    for number, line in enumerate(lines):
        parts = re.split(r"(``[^`]+``|:\w+:`[^`]+`|`[^`]+`)", line)
        lines[number] = "".join(
            re.sub(r"^`([^`]+)`$", r"``\1``", part) if place % 2 else part.replace("*", r"\*")
            for place, part in enumerate(parts)
        )


def draw_states(app: Sphinx, doctree: nodes.document) -> None:
    """Draw the Mermaid diagrams of pages, as GitHub does."""
    if not MERMAID.exists():
        return
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            drawing = f'<pre class="mermaid">{html.escape(block.astext())}</pre>'
            block.replace_self(nodes.raw("", drawing, format="html"))


def add_drawer(
    app: Sphinx, page: str, template: str, context: dict[str, object], doctree: nodes.document
) -> None:
    """A page with drawings has the program that makes them; no other page loads it."""
    if '<pre class="mermaid">' in str(context.get("body", "")):
        # Not as a module: a page that is a file may load none.
        app.add_js_file(MERMAID.name)
        app.add_js_file(None, body="mermaid.initialize({theme: 'neutral'});")


def mark_programs(
    app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]
) -> None:
    """Mark programs: an indented block after an empty line, in docstrings as in Markdown."""
    made: list[str] = []
    margin, in_program = 0, False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line:
            begins = bool(made) and not made[-1] and indent >= margin + 4
            if begins and not in_program:
                made += [" " * margin + "::", ""]
            in_program = begins or (in_program and indent > margin)
            margin = margin if in_program else indent
        made.append(line)
    lines[:] = made


def leave_out_the_wire(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object
) -> bool | None:
    """Conversions from and to messages of the protocol are not for users.

    Nor is what Python says of the fields of a named tuple: the class describes them.
    """
    is_field_of_tuple = type(thing).__name__ == "_tuplegetter"
    return True if name in ("from_wire", "to_wire") or is_field_of_tuple else None


def setup(app: Sphinx) -> None:
    app.connect("autodoc-skip-member", leave_out_the_wire)
    app.connect("autodoc-process-docstring", mark_programs, priority=100)
    app.connect("source-read", add_contents)
    app.connect("doctree-read", draw_states)
    for part in ("description", "options", "arguments", "epilog"):
        app.connect(f"sphinx-click-process-{part}", mark_help)
    app.connect("html-page-context", add_drawer)
