"""Finds the file with the schema of a topic's values."""

from __future__ import annotations

from pathlib import Path

from magnetar_spark.errors import OptionError

# What the names of schemas end with, by format.
SUFFIXES = {"json": (".ddl", ".json"), "avro": (".avsc",), "protobuf": (".desc", ".pb")}
# A schema is written by people; what is larger is another file.
SCHEMA_BYTES_MAX = 4 << 20


def schema_file(path: str, payload_format: str, topic: str) -> Path:
    """Return the file with the schema.

    Args:
        path: the file, or a directory with a file TOPIC.SUFFIX for each topic.
        payload_format: a key of `SUFFIXES`.
        topic: whose values the schema describes.
    Raises:
        OptionError: there is no such file, or there are several.
    """
    given = Path(path)
    if not given.is_dir():
        if not given.is_file():
            raise OptionError(f"there is no schema at {path}: name a file, or a directory of them")
        return given
    names = [topic + suffix for suffix in SUFFIXES[payload_format]]
    found = [given / name for name in names if (given / name).is_file()]
    if len(found) != 1:
        many = "has more than one of" if found else "has no"
        raise OptionError(f"the directory {path} {many} {' or '.join(names)}")
    return found[0]


def read_schema(path: Path) -> bytes:
    """Return the content of the file.

    Raises:
        OptionError: it cannot be read, or is too large for a schema.
    """
    try:
        with path.open("rb") as file:
            content = file.read(SCHEMA_BYTES_MAX + 1)
    except OSError as error:
        raise OptionError(f"cannot read the schema {path}: {error.strerror}") from error
    if len(content) > SCHEMA_BYTES_MAX:
        raise OptionError(f"{path} has more than {SCHEMA_BYTES_MAX:,} bytes: it is not a schema")
    return content


def schema_text(path: Path) -> str:
    """Return the file's text, without a byte order mark; raises as `read_schema`."""
    try:
        return read_schema(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise OptionError(f"{path} is not text in UTF-8") from None
