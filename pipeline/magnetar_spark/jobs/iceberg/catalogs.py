"""Opens the catalog that tables are in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from pyiceberg.catalog import Catalog, load_catalog
from sqlalchemy import URL

from magnetar_spark.errors import OptionError
from magnetar_spark.jobs.failures import one_line

# In a warehouse of its own, a directory on this machine.
CATALOG_FILE = "catalog.db"
# Part of the key of each table in the catalog: other programs open it by the same name.
CATALOG_NAME = "tables"


@dataclass(frozen=True)
class CatalogChoice:
    """Choice of a catalog.

    Attributes:
        name: as pyiceberg's configuration has it; None: its default one.
        properties: in addition to the configuration, or instead of it.
        warehouse: a directory on this machine with a catalog of its own; None: as told otherwise.
    """

    name: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    warehouse: str | None = None


def open_catalog(choice: CatalogChoice) -> Catalog:
    """Open a catalog.

    Raises:
        OptionError: there is none.
    """
    if choice.warehouse is not None and choice.name is not None:
        raise OptionError("a warehouse has a catalog of its own: name one of them")
    try:
        if choice.warehouse is None:
            return load_catalog(choice.name, **choice.properties)
        own = _in_directory(Path(choice.warehouse).absolute())
        return load_catalog(CATALOG_NAME, **{**own, **choice.properties})
    except Exception as error:  # Each kind of catalog has errors of its own.
        what = choice.warehouse or f"the catalog {choice.name or 'default'!r}"
        raise OptionError(
            f"{what} cannot be opened: {one_line(str(error))}. Name a directory with --warehouse,"
            " or a catalog of ~/.pyiceberg.yaml with --catalog"
        ) from error


def _in_directory(directory: Path) -> dict[str, str]:
    directory.mkdir(parents=True, exist_ok=True)
    # SQLite gets a URI: in a path, SQLAlchemy would take what follows a question mark for options.
    file = f"file:{quote(str(directory / CATALOG_FILE))}"
    url = URL.create("sqlite", database=file, query={"uri": "true"})
    return {
        "type": "sql",
        "uri": url.render_as_string(),
        # A path, not a URL: pyiceberg does not decode a URL's %20 when it writes files.
        "warehouse": str(directory),
    }
