"""Files with the schemas of topics, which the console is started with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from magnetar_console.looks.avro import AvroValues
from magnetar_console.looks.contents import Show
from magnetar_core.config import InvalidConfig

# A schema is written by people; what is larger is another file.
SCHEMA_BYTES_MAX: Final = 4 << 20


def shows_of(schemas: Sequence[str], *, framed: bool) -> dict[str, Show]:
    """Return how the values of topics are shown.

    Args:
        schemas: texts TOPIC=FILE; the file has a schema of Avro.
        framed: whether values begin with the number of their writer's schema, as Confluent's do;
            each of these is NUMBER.avsc beside FILE.
    Raises:
        InvalidConfig: a text has another form, or a file is not a schema.
    """
    shows: dict[str, Show] = {}
    for text in schemas:
        topic, separator, name = text.partition("=")
        if not (topic and separator and name):
            raise InvalidConfig(f"{text!r} is not TOPIC=FILE")
        if topic in shows:
            raise InvalidConfig(f"there are two schemas for {topic}")
        path = Path(name)
        writers: dict[int, str] | None = None
        if framed:
            files = [one for one in path.parent.glob("*.avsc") if one.stem.isdecimal()]
            if not files:
                raise InvalidConfig(
                    f"no writer's schema beside {path}: with framed values each is NUMBER.avsc"
                )
            writers = {int(one.stem): _text(one) for one in files}
        try:
            shows[topic] = AvroValues(_text(path), writers).show
        except InvalidConfig as error:
            raise InvalidConfig(f"{path}: {error}") from None
    return shows


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            found = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise InvalidConfig(f"cannot read the schema {path}: {error.strerror}") from error
    if len(found) > SCHEMA_BYTES_MAX:
        raise InvalidConfig(f"{path} has more than {SCHEMA_BYTES_MAX:,} bytes: it is not a schema")
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidConfig(f"{path} is not text in UTF-8") from None
