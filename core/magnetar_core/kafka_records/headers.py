"""Headers of Kafka's records as properties, and back.

Properties are different names with texts; headers may repeat, and have bytes or null. Of headers
with one name the last counts, as for lastHeader() of Kafka's clients. A value that is not UTF-8 is
a text in base64 behind a prefix, and becomes the same bytes again. No header hinders a reader.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from magnetar_core.kafka_records.reading import Headers

# As RFC 2397 writes data of no type.
BASE64_PREFIX = "data:;base64,"
# A text that no prefix of RFC 2397 has.
NULL_TEXT = "data:null"


def properties_of(headers: Headers) -> dict[str, str]:
    r"""Return headers as properties.

    Names are UTF-8. In one that is not, which Kafka does not allow, other bytes are as in \xff.
    """
    return {name.decode(errors="backslashreplace"): _text_of(value) for name, value in headers}


def headers_of(properties: Mapping[str, str]) -> Headers:
    """Return properties as headers."""
    return [(name.encode(), _value_of(text)) for name, text in properties.items()]


def _text_of(value: bytes | None) -> str:
    if value is None:
        return NULL_TEXT
    try:
        text = value.decode()
    except UnicodeDecodeError:
        pass
    else:
        # A text that would be taken for one of ours is not left as it is.
        if _value_of(text) == value:
            return text
    return BASE64_PREFIX + base64.b64encode(value).decode()


def _value_of(text: str) -> bytes | None:
    if text == NULL_TEXT:
        return None
    if text.startswith(BASE64_PREFIX):
        try:
            return base64.b64decode(text.removeprefix(BASE64_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass
    return text.encode()
