"""The codec against kio, which is made from Kafka's own schemas, and against hostile bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.wire import apis, codec
from magnetar_kafka.wire.apis import Api

VERSIONS = [(api, version) for api in apis.APIS for version in range(api.first, api.last + 1)]
LAYOUTS = json.loads(Path("kafka/magnetar_kafka/wire/messages.json").read_text())
SAMPLES = 5


def layout_of(api: Api, kind: str, version: int) -> Mapping[str, Any]:
    (row,) = [one for one in LAYOUTS[api.name][kind] if one["first"] <= version <= one["last"]]
    return dict(row["layout"])


def message(fields: Any, random: Random) -> dict[str, Any]:
    return {field["name"]: value_of(field, random) for field in fields}


def value_of(field: Mapping[str, Any], random: Random) -> Any:
    if field.get("nullable") and random.random() < 0.3 and field.get("type") != "uuid":
        return None
    if field.get("array"):
        one = {**field, "array": False, "nullable": False}
        return [value_of(one, random) for _ in range(random.randrange(3))]
    if "fields" in field:
        return message(field["fields"], random)
    kind = field["type"]
    if field["name"].endswith("error_code") and kind == "int16":
        return int(random.choice(list(ErrorCode)))
    if kind == "bool":
        return random.random() < 0.5
    if kind == "uuid":
        return UUID(int=random.getrandbits(128) | 1)
    if kind == "string":
        return random.choice(["", "a", "ä" * 70, "x" * 200])
    if kind == "bytes":
        return random.randbytes(random.choice([0, 1, 127, 128, 300]))
    if kind == "records":
        return (random.randbytes(130), random.randbytes(3))
    bits = int(kind.lstrip("uint"))
    # Durations and times have a smaller range in kio.
    return random.randrange(1 << min(bits - 1, 31) - 1)


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_what_is_written_is_what_others_read_and_write(api: Api, version: int) -> None:
    kio_index = pytest.importorskip("kio.index")
    from kio.serial import entity_reader, entity_writer

    for kind, load, writer, reader in (
        ("request", kio_index.load_request_schema, codec.request_writer, codec.request_reader),
        ("response", kio_index.load_response_schema, codec.response_writer, codec.response_reader),
    ):
        schema = load(api.key, version)
        layout = layout_of(api, kind, version)
        for seed in range(SAMPLES):
            values = message(layout["fields"], Random(seed))
            out = bytearray()
            writer(api, version)(out, values)
            entity, size = entity_reader(schema)(bytes(out), 0)
            assert size == len(out)
            again = io.BytesIO()
            entity_writer(schema)(again, entity)
            assert again.getvalue() == out
            read = reader(api, version)(codec.Input(bytes(out)))
            once_more = bytearray()
            writer(api, version)(once_more, with_pieces(read))
            assert once_more == out


def with_pieces(read: Any) -> Any:
    """Records are read whole and written in pieces."""
    if isinstance(read, dict):
        return {
            name: (value,) if name == "records" and value is not None else with_pieces(value)
            for name, value in read.items()
        }
    return [with_pieces(one) for one in read] if isinstance(read, list) else read


def test_the_layouts_are_those_of_kio() -> None:
    pytest.importorskip("kio.index")
    from generate_kafka_messages import content

    assert Path("kafka/magnetar_kafka/wire/messages.json").read_text() == content()


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_damaged_bytes_are_malformed_or_read_and_nothing_else(api: Api, version: int) -> None:
    random = Random(version)
    layout = layout_of(api, "request", version)
    for seed in range(SAMPLES):
        out = bytearray()
        codec.request_writer(api, version)(out, message(layout["fields"], Random(seed)))
        for _ in range(40):
            changed = bytearray(out) or bytearray(b"\x00")
            for _ in range(random.randint(1, 3)):
                changed[random.randrange(len(changed))] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            data = bytes(changed[: random.randint(0, len(changed))])
            try:
                codec.request_reader(api, version)(codec.Input(data))
            except codec.Malformed:
                pass


def test_an_array_may_not_claim_more_entries_than_are_allowed() -> None:
    body = (1 << 20).to_bytes(4, "big") + bytes(1 << 21)
    with pytest.raises(codec.Malformed, match="entries"):
        codec.request_reader(apis.METADATA, 1)(codec.Input(body))
