"""A cluster, a warehouse, and catalogs that fail, for tests of tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pyiceberg.catalog import Catalog
from pyiceberg.table import CommitTableResponse, Table
from tests.spark.orders_world import OrdersWorld

from magnetar_spark.jobs.iceberg.catalogs import CatalogChoice, open_catalog
from magnetar_spark.jobs.iceberg.tables import Report, Request, tables


class World(OrdersWorld):
    """A warehouse for each test, named after its first topic."""

    def topic(self, *values: bytes) -> str:
        """Make a topic with these values."""
        name = self.new_name()
        self.client.admin.topics.create(name, partitions=2)
        self.send(name, values)
        return name

    def warehouse(self, *topics: str) -> str:
        return str(self.directory / f"{topics[0]}.warehouse")

    def request(self, *topics: str, **changed: Any) -> Request:
        return Request(
            **{
                "servers": (self.address,),
                "topics": topics,
                "payload_format": "json",
                "schema_path": str(self.schema),
                "catalog": CatalogChoice(warehouse=self.warehouse(*topics)),
                **changed,
            }
        )

    def run(self, *topics: str, **changed: Any) -> Report:
        return tables(self.spark, self.request(*topics, **changed))

    def catalog(self, *topics: str) -> Catalog:
        return open_catalog(CatalogChoice(warehouse=self.warehouse(*topics)))

    def table(self, name: str, *topics: str) -> Table:
        return self.catalog(*(topics or (name,))).load_table(("magnetar", name))

    def rows(self, name: str, *topics: str, tag: str | None = None) -> list[dict[str, Any]]:
        """The rows of a table, by partition and offset."""
        table = self.table(name, *topics)
        scan = table.scan() if tag is None else table.scan().use_ref(tag)
        found = scan.to_arrow().to_pylist()
        return sorted(found, key=lambda one: (one["_partition"], one["_offset"]))

    def ids(self, name: str, *topics: str, tag: str | None = None) -> list[int]:
        return sorted(one["id"] for one in self.rows(name, *topics, tag=tag))

    def cuts(self, name: str, *topics: str) -> list[str]:
        """The tags of a table, which name the cuts that it has had."""
        return sorted(one for one in self.table(name, *topics).refs() if one != "main")


class Killed(BaseException):
    """The process ends here: nothing catches it."""


class FailingCatalog:
    """A catalog that does something else at one of its commits.

    Args:
        fails_at: the number of the commit, from 0.
        before, after: called before and after that commit.
    """

    def __init__(
        self,
        catalog: Catalog,
        fails_at: int,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalog = catalog
        self._left = fails_at
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def load_table(self, identifier: Any) -> Table:
        table = self._catalog.load_table(identifier)
        table.catalog = self  # type: ignore[assignment]
        return table

    def commit_table(self, *given: Any, **named: Any) -> CommitTableResponse:
        self._left -= 1
        if self._left == -1:
            self._before()
        made = self._catalog.commit_table(*given, **named)
        if self._left == -1:
            self._after()
        return made


@contextmanager
def failing_catalog(
    fails_at: int,
    *,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> Iterator[None]:
    """The job's catalog is a `FailingCatalog` meanwhile."""

    def opened(choice: CatalogChoice) -> FailingCatalog:
        return FailingCatalog(open_catalog(choice), fails_at, before=before, after=after)

    with patch("magnetar_spark.jobs.iceberg.tables.open_catalog", opened):
        yield


def raising(error: BaseException) -> Callable[[], None]:
    def raise_it() -> None:
        raise error

    return raise_it
