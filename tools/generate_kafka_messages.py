"""kafka/magnetar_kafka/wire/messages.json: the layouts of Kafka's messages, from kio's classes.

kio makes its classes from Kafka's own schemas. Its reader is not used at a server: a length of a
few bytes makes it ask for gigabytes, and the process ends.
"""

import dataclasses
import json
import types
import typing
from pathlib import Path
from typing import Any

from kio.index import load_request_schema, load_response_schema

from magnetar_kafka.wire.apis import APIS

FILE = Path("kafka/magnetar_kafka/wire/messages.json")
RENAMED = {"error_code": "int16", "timedelta_i32": "int32", "timedelta_i64": "int64"}
RENAMED |= {"datetime_i64": "int64"}


def content() -> str:
    found: dict[str, Any] = {}
    for api in APIS:
        found[api.name] = {
            "request": layouts(api, load_request_schema),
            "response": layouts(api, load_response_schema),
        }
    lines = [f"{json.dumps(name)}: {json.dumps(layout)}" for name, layout in found.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def layouts(api: Any, load: Any) -> list[dict[str, Any]]:
    """Return the layouts of a message; versions with the same one share it."""
    rows: list[dict[str, Any]] = []
    for version in range(api.first, api.last + 1):
        kind = load(api.key, version)
        row = {"flexible": kind.__flexible__, "fields": fields_of(kind)}
        if rows and rows[-1]["layout"] == row:
            rows[-1]["last"] = version
        else:
            rows.append({"first": version, "last": version, "layout": row})
    return rows


def fields_of(kind: Any) -> list[dict[str, Any]]:
    return [described(field, typing.get_type_hints(kind)) for field in dataclasses.fields(kind)]


def described(field: Any, hints: dict[str, Any]) -> dict[str, Any]:
    hint, row = hints[field.name], {"name": field.name}
    if isinstance(hint, types.UnionType):
        hint = next(one for one in typing.get_args(hint) if one is not types.NoneType)
        row["nullable"] = True
    if typing.get_origin(hint) is tuple:
        hint = typing.get_args(hint)[0]
        row["array"] = True
    if dataclasses.is_dataclass(hint):
        row["fields"] = fields_of(hint)
    else:
        kafka_type = field.metadata["kafka_type"]
        row["type"] = RENAMED.get(kafka_type, kafka_type)
        if kafka_type == "datetime_i64":
            return {"name": field.name, "type": "int64", "default": -1}
    if "tag" in field.metadata:
        row["tag"] = field.metadata["tag"]
    if field.default is not dataclasses.MISSING and not row.get("fields"):
        default = field.default
        if default == ():
            default = []
        if hasattr(default, "total_seconds"):
            default = round(default.total_seconds() * 1000)
        if hasattr(default, "value"):
            default = default.value
        row["default"] = default
    return row


if __name__ == "__main__":
    FILE.write_text(content())
