"""Settings of Sphinx, which makes HTML of these pages and of docstrings: `make docs`."""

import re
from importlib.metadata import version as installed_version

from sphinx.application import Sphinx

project = "Magnetar"
version = release = installed_version("magnetar")
copyright = "Apache License 2.0"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
root_doc = "index"
html_theme = "furo"
html_title = f"Magnetar {release}"

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
    """The pages that the index links to are the contents, in its order."""
    if page == root_doc:
        pages = "\n".join(re.findall(r"\]\(([\w/-]+)\.md\)", source[0]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


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
