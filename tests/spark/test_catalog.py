"""docs/spark.md, The source: which offsets an option may name."""

from __future__ import annotations

import json
from typing import cast

import pytest

from magnetar import blocking
from magnetar_spark.catalog import Catalog, Extent
from magnetar_spark.errors import OptionError
from magnetar_spark.options.source import source_options

EXTENT = Extent(first={"in": {0: 3, 1: 0}}, end={"in": {0: 7, 1: 0}}, topic_ids={"in": 1})


def _resolved(offsets: dict[str, int]) -> dict[int, int]:
    options = source_options(
        {
            "magnetar.bootstrap.servers": "localhost:1",
            "subscribe": "in",
            "startingOffsets": json.dumps({"in": offsets}),
        },
        streaming=False,
    )
    # Nobody is asked about offsets that are named.
    catalog = Catalog(cast(blocking.Client, None), options.topics)
    return catalog.resolve(options.starting, EXTENT)["in"]


def test_an_offset_may_be_the_end_and_not_lie_behind_it() -> None:
    assert _resolved({"0": 7, "1": 0}) == {0: 7, 1: 0}
    assert _resolved({"0": -2, "1": -1}) == {0: 3, 1: 0}
    for behind in ({"0": 8, "1": 0}, {"0": 7, "1": 1}):
        with pytest.raises(OptionError, match="startingOffsets: in partition"):
            _resolved(behind)
