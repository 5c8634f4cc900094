"""Token of a consistent cut: the text that names it. Pure.

    cut1-<base64url, without padding, of: CRC-32C of the rest, magnetar.v1.CutToken>

The number is the version of the form.
Source: docs/design/0015-cuts.md.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Final

import google_crc32c
from google.protobuf.message import DecodeError

from magnetar_core.cuts.cuts import Cut, PartitionCut, TopicCut
from magnetar_core.errors import InvalidArgument, UnsupportedVersion
from magnetar_core.wire import cut_pb2 as pb

TOKEN_VERSION: Final = 1
# A partition takes some thirty bytes.
PARTITIONS_MAX: Final = 10_000
TOKEN_CHARACTERS_MAX: Final = 1 << 20

_FORM: Final = re.compile(r"cut([0-9]{1,9})-(.*)", re.ASCII)
_CHECKSUM: Final = struct.Struct(">I")


def to_text(cut: Cut) -> str:
    """Return the token of a cut: printable ASCII without spaces.

    Raises:
        InvalidArgument: the cut has too many partitions, or their topics have very long names.
    """
    wire = pb.CutToken(cluster_id=cut.cluster_id, stamp=cut.stamp)
    count = 0
    for name, topic in cut.topics.items():
        count += len(topic.partitions)
        added = wire.topics.add(topic=name, topic_id=topic.topic_id)
        for one in topic.partitions:
            added.partitions.add(
                ledger_id=one.ledger_id,
                first_offset=one.first_offset,
                begun_offset=one.begun_offset,
                end_offset=one.end_offset,
            )
    body = wire.SerializeToString(deterministic=True)
    data = _CHECKSUM.pack(google_crc32c.value(body)) + body
    text = f"cut{TOKEN_VERSION}-" + base64.urlsafe_b64encode(data).rstrip(b"=").decode()
    if count > PARTITIONS_MAX or len(text) > TOKEN_CHARACTERS_MAX:
        raise InvalidArgument(
            f"a cut takes {PARTITIONS_MAX} partitions at most, with a token of"
            f" {TOKEN_CHARACTERS_MAX} characters: take it of fewer topics"
        )
    return text


def parse(text: str) -> Cut:
    """Return the cut that a token names.

    Raises:
        InvalidArgument: it is not a token, or is damaged.
        UnsupportedVersion: a later version has made it.
    """
    text = text.strip()
    if len(text) > TOKEN_CHARACTERS_MAX:
        raise InvalidArgument(f"a cut's token has {TOKEN_CHARACTERS_MAX} characters at most")
    form = _FORM.fullmatch(text)
    if form is None:
        raise InvalidArgument(f"{text[:40]!r} is not the token of a cut")
    version = int(form[1])
    if version > TOKEN_VERSION:
        raise UnsupportedVersion(
            f"the cut's token has version {version}, this client knows {TOKEN_VERSION}: upgrade it"
        )
    if version != TOKEN_VERSION:
        raise InvalidArgument(f"there are no tokens of version {version}")
    return _cut_of(_body_of(form[2]))


def _body_of(encoded: str) -> bytes:
    try:
        data = base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _damaged("it is cut off, or has other characters") from error
    body = data[_CHECKSUM.size :]
    if len(data) < _CHECKSUM.size or data[: _CHECKSUM.size] != _CHECKSUM.pack(
        google_crc32c.value(body)
    ):
        raise _damaged("its checksum is wrong")
    return body


def _cut_of(body: bytes) -> Cut:
    try:
        wire = pb.CutToken.FromString(body)
    except DecodeError as error:
        raise _damaged("it has another content") from error
    topics = {
        one.topic: TopicCut(
            one.topic_id,
            tuple(
                PartitionCut(at.ledger_id, at.first_offset, at.begun_offset, at.end_offset)
                for at in one.partitions
            ),
        )
        for one in wire.topics
    }
    partitions = [one for topic in topics.values() for one in topic.partitions]
    sound = (
        len(topics) == len(wire.topics) > 0
        and all(name and topic.partitions for name, topic in topics.items())
        and len(partitions) <= PARTITIONS_MAX
        and all(
            partition.first_offset <= partition.begun_offset <= partition.end_offset
            for partition in partitions
        )
    )
    if not sound:
        raise _damaged("its parts contradict each other")
    return Cut(wire.cluster_id, wire.stamp, topics)


def _damaged(why: str) -> InvalidArgument:
    return InvalidArgument(f"the cut's token is damaged: {why}; copy it whole, or take a new cut")
