"""docs/spark.md, The source and The sink: each option, and what is said of a bad value."""

from __future__ import annotations

import pytest

from magnetar_spark.errors import OptionError
from magnetar_spark.options.bounds import Bound
from magnetar_spark.options.sink import sink_options
from magnetar_spark.options.source import NOW, source_options

SERVERS = {"magnetar.bootstrap.servers": "127.0.0.1:6650"}
SOURCE = {**SERVERS, "subscribe": "flights"}
SINK = {**SERVERS, "topic": "delays"}


def test_defaults_of_a_streaming_source() -> None:
    options = source_options(SOURCE, streaming=True)
    assert options.servers == ("127.0.0.1:6650",)
    assert options.topics.names == ("flights",)
    assert options.starting.bound is Bound.LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers
    assert (options.max_offsets, options.min_offsets, options.min_partitions) == (0, 0, 0)
    assert options.trigger_delay_ms == 900_000


def test_defaults_of_a_batch_source() -> None:
    options = source_options(SOURCE, streaming=False)
    assert options.starting.bound is Bound.EARLIEST
    assert options.ending.bound is Bound.LATEST


def test_names_have_no_case() -> None:
    options = source_options(
        {**SERVERS, "SUBSCRIBE": "b, a,,a", "FailOnDataLoss": "FALSE", "minpartitions": "8"},
        streaming=True,
    )
    assert options.topics.names == ("a", "b")
    assert not options.fail_on_data_loss
    assert options.min_partitions == 8


def test_several_servers() -> None:
    options = sink_options({"magnetar.bootstrap.servers": "a:1, b:2", "topic": "t"}, streaming=True)
    assert options.servers == ("a:1", "b:2")


def test_topics_by_pattern_and_by_partition() -> None:
    pattern = source_options({**SERVERS, "subscribePattern": "f.*"}, streaming=True)
    assert pattern.topics.pattern == "f.*"
    assigned = source_options({**SERVERS, "assign": '{"b": [1, 0, 1], "a": [2]}'}, streaming=True)
    assert assigned.topics.assigned == {"a": (2,), "b": (0, 1)}


def test_the_most_particular_beginning_counts() -> None:
    """Spark, Structured Streaming + Kafka Integration Guide: startingTimestamp comes first."""
    given = {
        **SOURCE,
        "startingOffsets": '{"flights": {"0": 5, "1": -2}, "@magnetar": {"topics": {}}}',
    }
    starting = source_options(given, streaming=True).starting
    assert (starting.bound, starting.places) == (Bound.OFFSETS, {"flights": {0: 5, 1: -2}})
    given["startingOffsetsByTimestamp"] = '{"flights": {"0": 1000, "1": 2000}}'
    starting = source_options(given, streaming=True).starting
    assert (starting.bound, starting.places) == (Bound.TIMES, {"flights": {0: 1000, 1: 2000}})
    assert not starting.latest_when_absent
    given["startingTimestamp"] = "1000"
    given["startingOffsetsByTimestampStrategy"] = "latest"
    starting = source_options(given, streaming=True).starting
    assert (starting.bound, starting.time_ms) == (Bound.TIME, 1000)
    assert starting.latest_when_absent


@pytest.mark.parametrize(
    ("text", "expected_ms"), [("250", 250), ("250ms", 250), ("90s", 90_000), ("2 h", 7_200_000)]
)
def test_durations(text: str, expected_ms: int) -> None:
    assert sink_options({**SINK, "transactionTimeout": text}, streaming=True).timeout_ms == (
        expected_ms
    )


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({}, "magnetar.bootstrap.servers"),
        ({"magnetar.bootstrap.servers": "nowhere"}, "not 'host:port'"),
        (SERVERS, "exactly one of subscribe"),
        ({**SOURCE, "assign": '{"a": [0]}'}, "exactly one of subscribe"),
        ({**SERVERS, "subscribe": " ,"}, "no topic"),
        ({**SERVERS, "subscribePattern": "("}, "not a regular expression"),
        ({**SERVERS, "assign": '{"a": []}'}, "assign names partitions"),
        ({**SERVERS, "assign": '{"a": ["0"]}'}, "assign names partitions"),
        ({**SERVERS, "assign": "{"}, "not JSON"),
        ({**SOURCE, "subscirbe": "x"}, "unknown option 'subscirbe' .did you mean 'subscribe'.."),
        ({**SOURCE, "startingOffset": "x"}, "did you mean 'startingOffsets'"),
        ({**SOURCE, "topic": "x"}, "unknown option 'topic' .did you mean 'subscribe'.."),
        ({**SOURCE, "bootstrap.servers": "x"}, "did you mean 'magnetar.bootstrap.servers'"),
        ({**SOURCE, "zzz": "x"}, "unknown option 'zzz'; there are: "),
        ({**SOURCE, "endingOffsets": "latest"}, "no meaning in a streaming query"),
        ({**SOURCE, "startingOffsets": "first"}, "not JSON"),
        ({**SOURCE, "startingOffsets": '{"flights": {"0": -3}}'}, "-3"),
        ({**SOURCE, "startingOffsets": '{"flights": {"0": 1.5}}'}, "looks like"),
        ({**SOURCE, "startingOffsets": '{"flights": [1]}'}, "looks like"),
        ({**SOURCE, "startingOffsets": "[1]"}, "looks like"),
        ({**SOURCE, "startingTimestamp": "yesterday"}, "whole number"),
        ({**SOURCE, "startingOffsetsByTimestamp": '{"flights": {"0": -1}}'}, "milliseconds"),
        ({**SOURCE, "startingOffsetsByTimestampStrategy": "skip"}, "'error' or 'latest'"),
        ({**SOURCE, "maxOffsetsPerTrigger": "0"}, "above 0"),
        ({**SOURCE, "maxRecordsPerPartition": "0"}, "above 0"),
        ({**SOURCE, "maxOffsetsPerTrigger": "1e3"}, "whole number"),
        ({**SOURCE, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "exceeds"),
        ({**SOURCE, "minPartitions": "-1"}, "whole number"),
        ({**SOURCE, "maxTriggerDelay": "soon"}, "number with a unit"),
        ({**SOURCE, "failOnDataLoss": "yes"}, "'true' or 'false'"),
        ({**SOURCE, "includeHeaders": ""}, "'true' or 'false'"),
        ({**SOURCE, "cut": "now"}, r"a streaming query goes on. Read it with spark\.read"),
        ({**SOURCE, "SINCE": "cut1-A"}, "a streaming query goes on"),
    ],
)
def test_a_bad_streaming_source(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        source_options(given, streaming=True)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("groupIdPrefix", "belongs to no consumer group"),
        ("KAFKA.group.id", "belongs to no consumer group"),
        ("fetchOffset.numRetries", "asked for again by themselves"),
        ("fetchOffset.retryIntervalMs", "asked for again by themselves"),
        ("fetchOffset.other", "no Kafka client"),
        ("kafkaConsumer.pollTimeoutMs", "'maxRecordsPerPartition'"),
        ("kafka.max.poll.records", "'maxOffsetsPerTrigger'"),
        ("kafka.bootstrap.servers", "'magnetar.bootstrap.servers'"),
        ("kafka.security.protocol", "no Kafka client"),
        ("kafka.compression.type", "'compression'"),
        ("kafka.transactional.id", "'txnAppId'"),
        ("kafka.acks", "on disk"),
    ],
)
def test_options_of_kafka_are_told_what_stands_in_their_place(name: str, advice: str) -> None:
    with pytest.raises(OptionError, match=f"is of Kafka's source or sink: .*{advice}"):
        source_options({**SOURCE, name: "1"}, streaming=True)
    with pytest.raises(OptionError, match=advice):
        sink_options({**SINK, name: "1"}, streaming=True)


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ({"startingOffsets": "latest"}, "no meaning in a batch query"),
        ({"endingOffsets": "earliest"}, "nothing lies before it"),
        ({"endingOffsets": '{"flights": {"0": -2}}'}, "-2"),
        ({"endingTimestamp": "-1"}, "whole number"),
        ({"maxOffsetsPerTrigger": "5"}, "no meaning in a batch query"),
        ({"maxTriggerDelay": "5s"}, "no meaning in a batch query"),
        ({"since": "cut1-A"}, "name the later one with cut"),
        ({"cut": "now", "since": "NOW"}, "since must be"),
        ({"cut": "now", "failOnDataLoss": "false"}, "not one moment"),
        *(
            ({"cut": "now", name: "earliest"}, f"{name} and cut contradict each other")
            for name in (
                "startingOffsets",
                "startingTimestamp",
                "startingOffsetsByTimestamp",
                "startingOffsetsByTimestampStrategy",
                "endingOffsets",
                "endingTimestamp",
                "endingOffsetsByTimestamp",
            )
        ),
    ],
)
def test_a_bad_batch_source(more: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        source_options({**SOURCE, **more}, streaming=False)


def test_a_cut() -> None:
    assert source_options(SOURCE, streaming=False).cut is None
    assert source_options({**SOURCE, "CUT": " Now "}, streaming=False).cut == NOW
    options = source_options({**SOURCE, "cut": "cut1-B", "since": "cut1-A"}, streaming=False)
    assert (options.cut, options.since) == ("cut1-B", "cut1-A")


@pytest.mark.parametrize(
    ("streaming", "more", "complaint"),
    [
        (True, {"txnAppId": "a", "txnVersion": "1"}, "is for batch writes"),
        (True, {"transactionTimeout": "0s"}, "above 0"),
        (True, {"transactionTimeout": "1 fortnight"}, "number with a unit"),
        (True, {"compression": "gzip"}, "'none', 'zstd' or 'lz4'"),
        (True, {"subscribe": "x"}, "unknown option 'subscribe' .did you mean 'topic'.."),
        (False, {"txnAppId": "a"}, "belong together"),
        (False, {"txnVersion": "1"}, "belong together"),
        (False, {"txnAppId": "", "txnVersion": "1"}, "must not be empty"),
        (False, {"txnAppId": "a", "txnVersion": "-1"}, "whole number"),
    ],
)
def test_a_bad_sink(streaming: bool, more: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        sink_options({**SINK, **more}, streaming=streaming)


def test_a_batch_sink_that_counts_once() -> None:
    options = sink_options({**SINK, "txnAppId": "job", "txnVersion": "7"}, streaming=False)
    assert (options.app_id, options.app_version) == ("job", 7)


def test_spark_hands_its_own_options_to_a_sink() -> None:
    sink_options({**SINK, "checkpointLocation": "/x", "queryName": "q"}, streaming=True)


FILES = {
    "magnetar.tls.certificate.file": "alice.pem",
    "magnetar.tls.key.file": "alice.key",
}


def test_links_are_as_the_environment_says_unless_an_option_does() -> None:
    assert source_options(SOURCE, streaming=True).links is None
    assert sink_options(SINK, streaming=True).links is None


def test_links_talk_tls_when_an_authority_is_named() -> None:
    given = {"magnetar.tls.ca.file": "ca.pem", "Magnetar.Token.File": "token", **FILES}
    expected = {
        "tls": True,
        "tls_ca_file": "ca.pem",
        "tls_client_certificate_file": "alice.pem",
        "tls_client_key_file": "alice.key",
        "token_file": "token",
    }
    assert dict(source_options({**SOURCE, **given}, streaming=True).links or ()) == expected
    assert dict(sink_options({**SINK, **given}, streaming=False).links or ()) == expected
    only = source_options({**SOURCE, "magnetar.tls": "true"}, streaming=True).links
    assert only == (("tls", True),)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (FILES, "no use without magnetar.tls.ca.file"),
        ({"magnetar.tls.key.file": "alice.key"}, "belong together"),
        ({"magnetar.tls": "yes"}, "'true' or 'false'"),
    ],
)
def test_links_that_make_no_sense(given: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        sink_options({**SINK, **given}, streaming=True)
