"""Settings that check themselves, with errors that say what to do; logs."""

import io
import json
import logging
import re

import pytest

from magnetar_core.config import (
    InvalidConfig,
    ListenConfig,
    is_loopback,
    join_address,
    split_address,
)
from magnetar_core.process.observability import set_up_logging


def test_other_machines_are_let_in_only_by_the_operators_word() -> None:
    assert ListenConfig().host == "127.0.0.1"
    with pytest.raises(InvalidConfig, match="--allow-remote"):
        ListenConfig(host="0.0.0.0")
    assert ListenConfig(host="0.0.0.0", allow_remote=True).host == "0.0.0.0"


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": 65_536},
        {"metrics_port": -1},
        {"stream_port": -1},
        {"stream_port": 1 << 16},
        {"session_queue_bytes_max": 0},
        {"stop_grace_ms": -1},
        {"tls_key_file": "key.pem"},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidConfig):
        ListenConfig(**wrong)  # type: ignore[arg-type]


def test_addresses() -> None:
    assert split_address("localhost:6650") == ("localhost", 6650)
    assert split_address("[::1]:6650") == ("::1", 6650)
    assert join_address("::1", 6650) == "[::1]:6650"
    assert is_loopback("127.0.0.1")
    assert is_loopback("::1")
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("broker.example")
    assert split_address("[fe80::1%eth0]:1") == ("fe80::1%eth0", 1)
    # Compose names a service so, and a domain may have letters of any language.
    assert split_address("my_broker:1") == ("my_broker", 1)
    assert split_address("bücher.example:1") == ("bücher.example", 1)
    assert split_address("a" * 253 + ":1")[1] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        *("6650", "host", "host:", ":1", "host:x", "host:70000", "host:²", "host:" + "1" * 5_000),
        *("a:1:6650", "[::1]:" + "1" * 5_000),
        # Half of the brackets, and what has no place in them.
        *("::1]:6650", "[::1]6650", "[127.0.0.1]:1", "[host]:1", "[]:1"),
        *("ipv4:1.2.3.4:1", "http://a:1", "a b:1", "a\0b:1", "a\n:1", "a" * 254 + ":1"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(wrong: str) -> None:
    with pytest.raises(InvalidConfig, match=r"HOST:PORT|in brackets, as") as caught:
        split_address(wrong)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("::1:6650", "[::1]:6650"),
        ("fe80::2:6650", "[fe80::2]:6650"),
        ("::1", "[::1]:6650"),
        ("[::1:6650", "[::1]:6650"),
        ("[[::1]]:6650", "[::1]:6650"),
        ("[::1]", "[::1]:6650"),
        ("[::1]:x", "[::1]:6650"),
        ("2001:db8:0:0:0:0:0:7:6651", "[2001:db8:0:0:0:0:0:7]:6651"),
    ],
)
def test_an_ipv6_address_without_brackets_is_refused(wrong: str, right: str) -> None:
    """gRPC took it for the name of a machine that does not answer."""
    with pytest.raises(InvalidConfig, match=re.escape(f"in brackets, as {right}")):
        split_address(wrong)


def test_logs_are_json_lines_unless_a_person_reads_them() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        set_up_logging(level="info", stream=stream)
        logging.getLogger("magnetar.test").info("opened %s", "orders", extra={"txn_id": "0:1:7"})
        logging.getLogger("magnetar.test").debug("unseen")
        logging.getLogger("grpc._cython.cygrpc").error(
            "ExecuteBatchError raised in core by servicer method [/magnetar.v1.Broker/Exchange]"
        )
        set_up_logging(level="info", log_format="text", stream=stream)
        logging.getLogger("magnetar.test").info("opened %s", "payments")
        with pytest.raises(InvalidConfig, match="choose debug"):
            set_up_logging(level="loud")
    finally:
        root.handlers[:] = before
        root.setLevel(level)
    first, second = stream.getvalue().splitlines()
    line = json.loads(first)
    assert (line["level"], line["logger"], line["message"]) == (
        "info",
        "magnetar.test",
        "opened orders",
    )
    assert line["txn_id"] == "0:1:7"
    assert second.endswith("INFO    magnetar.test: opened payments")
