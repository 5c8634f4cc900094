"""Options as they are given: texts, whatever the case of their names. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from magnetar_spark.errors import OptionError
from magnetar_spark.offsets import METADATA, Places, to_places

SERVERS = "magnetar.bootstrap.servers"
TLS = "magnetar.tls"
# Names of options, and of the settings of links that they stand for.
LINKS = {
    "magnetar.tls.ca.file": "tls_ca_file",
    "magnetar.tls.certificate.file": "tls_client_certificate_file",
    "magnetar.tls.key.file": "tls_client_key_file",
    "magnetar.tls.server.name": "tls_server_name",
    "magnetar.token.file": "token_file",
}
# How to reach servers, of every source and sink.
SERVER_OPTIONS = (SERVERS, TLS, *LINKS)
# Settings of links: names and values of LinkConfig.
Links = tuple[tuple[str, str | bool], ...]
_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(\d+)\s*([a-z]*)")
# What names topics, for a source and for a sink.
_TOPICS = {"topic": "subscribe", "subscribe": "topic"}


# Replacements of options that only Spark's Kafka source and sink have.
# Source: Spark, Structured Streaming + Kafka Integration Guide.

_NO_GROUP = (
    "the source belongs to no consumer group, since the query's checkpoint says how far it has"
    " come: leave it out. A group that is to follow what the query has done reads its output"
)
_NO_RETRIES = (
    "offsets are asked for again by themselves, as long as an operation may take: leave it out"
)
_NO_POLL = (
    "tasks read ranges that are there already, and wait for no poll: leave it out;"
    " 'maxOffsetsPerTrigger' and 'maxRecordsPerPartition' say how much a batch and a task read"
)
_NO_CLIENT = "there is no Kafka client here that would take it: leave it out"
_REPLACED = {
    "groupidprefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "fetchoffset.numretries": _NO_RETRIES,
    "fetchoffset.retryintervalms": _NO_RETRIES,
    "kafkaconsumer.polltimeoutms": _NO_POLL,
    "kafka.max.poll.records": _NO_POLL,
    "kafka.max.partition.fetch.bytes": _NO_POLL,
    "kafka.fetch.min.bytes": _NO_POLL,
    "kafka.fetch.max.bytes": _NO_POLL,
    "kafka.fetch.max.wait.ms": _NO_POLL,
    "kafka.bootstrap.servers": "here it is 'magnetar.bootstrap.servers', with Magnetar's brokers",
    "kafka.compression.type": "here it is 'compression': 'none', 'zstd' or 'lz4'",
    "kafka.transaction.timeout.ms": "here it is 'transactionTimeout'",
    "kafka.transactional.id": (
        "each batch is a transaction anyway: leave it out; in foreachBatch"
        " 'txnAppId' and 'txnVersion' name what counts once"
    ),
    "kafka.acks": "what is committed is on disk, whatever is set: leave it out",
    "kafka.isolation.level": "what is not committed is never read: leave it out",
}
_PREFIXES = ("kafka.", "kafkaconsumer.", "fetchoffset.")


def require_none_of_kafka(name: str) -> None:
    """Check that an option is none of Kafka's.

    Raises:
        OptionError: it is an option of Kafka; the error says what to use instead.
    """
    known = _REPLACED.get(name.lower())
    if known is None and name.lower().startswith(_PREFIXES):
        known = _NO_CLIENT
    if known is not None:
        raise OptionError(f"option {name!r} is of Kafka's source or sink: {known}")


def _suggestion(name: str, known: Mapping[str, str]) -> str:
    """Return a hint at the option that may have been meant.

    Args:
        known: options by their names in small letters.
    """
    close = difflib.get_close_matches(_TOPICS.get(name, name), known, n=1)
    return f" (did you mean {known[close[0]]!r}?)" if close else ""


class GivenOptions:
    """Options by name, and what their texts say."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): str(text) for name, text in given.items()}

    def check_known(self, known: Iterable[str], elsewhere: Iterable[str], why: str) -> None:
        """Check that there is no other option than those known.

        Args:
            elsewhere: options that have a meaning elsewhere, and `why` not here.
        Raises:
            OptionError: there is; as all methods do when an option cannot be understood.
        """
        names = {name.lower(): name for name in known}
        others = {name.lower(): name for name in elsewhere}
        for name in self._given:
            if name in others:
                raise OptionError(f"{others[name]} {why}")
            if name not in names:
                require_none_of_kafka(name)
                raise OptionError(
                    f"unknown option {name!r}{_suggestion(name, names)}; there are:"
                    f" {', '.join(sorted(names.values()))}"
                )

    def require_none(self, names: Iterable[str], why: str) -> None:
        """Check that none of these is given, and say why otherwise."""
        for name in names:
            if self.text(name) is not None:
                raise OptionError(f"{name} {why}")

    def text(self, name: str) -> str | None:
        """Return an option's text; None: it is not given."""
        return self._given.get(name.lower())

    def servers(self) -> tuple[str, ...]:
        """Return the brokers, "host:port"."""
        text = self.text(SERVERS) or ""
        servers = tuple(one.strip() for one in text.split(",") if one.strip())
        if not servers:
            raise OptionError(
                f"option {SERVERS!r} is missing: the broker's 'host:port'. If it was given to"
                " CREATE TABLE ... USING magnetar, Spark does not hand it on: CREATE TEMPORARY VIEW"
                " ... USING magnetar OPTIONS (...) does"
            )
        for server in servers:
            host, _, port = server.rpartition(":")
            if not host or not port.isdigit():
                raise OptionError(f"{SERVERS}: {server!r} is not 'host:port'")
        return servers

    def links(self) -> Links | None:
        """Return the settings of links; None: none is given, and the environment says."""
        given = [(setting, text) for name, setting in LINKS.items() if (text := self.text(name))]
        if not given and self.text(TLS) is None:
            return None
        files = dict(given)
        if ("tls_client_certificate_file" in files) != ("tls_client_key_file" in files):
            raise OptionError(
                "magnetar.tls.certificate.file and magnetar.tls.key.file belong together: give both"
            )
        has_tls = self.flag(TLS, default="tls_ca_file" in files)
        if "tls_client_certificate_file" in files and not has_tls:
            raise OptionError(
                "magnetar.tls.certificate.file has no use without magnetar.tls.ca.file"
            )
        return (("tls", has_tls), *given)

    def names(self, name: str) -> tuple[str, ...]:
        """Return a list of names; none if it is not given."""
        text = self.text(name)
        if text is None:
            return ()
        names = tuple(one.strip() for one in text.split(","))
        if not all(names):
            raise OptionError(f"{name} is a list as 'key,value', not {text!r}")
        return names

    def flag(self, name: str, *, default: bool) -> bool:
        """Return the switch of a text 'true' or 'false'."""
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} is 'true' or 'false', not {text!r}")
        return text.lower() == "true"

    def whole(self, name: str, text: str) -> int:
        """Return the whole number in a text."""
        # int() would take "1_000", " 7 " and other scripts' digits.
        if not re.fullmatch(r"[0-9]{1,18}", text):
            raise OptionError(f"{name} is a whole number from 0, not {text!r}")
        return int(text)

    def count(self, name: str) -> int:
        """Return a number above 0; 0: it is not given."""
        text = self.text(name)
        if text is None:
            return 0
        number = self.whole(name, text)
        if number == 0:
            raise OptionError(f"{name} must be above 0")
        return number

    def duration_ms(self, name: str, default_ms: int) -> int:
        """Return a duration, in milliseconds."""
        text = self.text(name)
        if text is None:
            return default_ms
        found = _DURATION.fullmatch(text.strip().lower())
        if found is None or found[2] not in (*_UNIT_MS, ""):
            raise OptionError(
                f"{name} is a number with a unit of {', '.join(_UNIT_MS)}, as '90s', not {text!r}"
            )
        return int(found[1]) * _UNIT_MS[found[2] or "ms"]

    def parsed(self, name: str, text: str) -> Any:
        """Return the value of a JSON text."""
        try:
            return json.loads(text)
        except ValueError as error:
            raise OptionError(f"{name} is not JSON: {error}") from error

    def places(self, name: str, text: str, example: str) -> Places:
        """Return numbers by topic and partition; errors show the example."""
        parsed = self.parsed(name, text)
        if isinstance(parsed, dict):
            parsed.pop(METADATA, None)
        try:
            return to_places(parsed)
        except ValueError as error:
            raise OptionError(f"{name}: {error}; it looks like {example}") from error
