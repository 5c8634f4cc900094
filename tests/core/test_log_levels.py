"""The command that changes the level of a server's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from magnetar_core.errors import InvalidArgument
from magnetar_core.server.commands import Reply, run_handler
from magnetar_core.server.log_levels import LOG_LEVEL_HANDLERS, set_log_level
from magnetar_core.wire import common_pb2

LOGGER = "magnetar_core.server.log_levels"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    loggers = [logging.getLogger(), logging.getLogger(LOGGER)]
    before = [one.level for one in loggers]
    yield
    for one, level in zip(loggers, before, strict=True):
        one.setLevel(level)


def test_all_loggers_and_one_of_them() -> None:
    set_log_level("error", "")
    assert not logging.getLogger(LOGGER).isEnabledFor(logging.WARNING)
    assert set_log_level("debug", LOGGER) == "inherited"
    assert logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("magnetar_core").isEnabledFor(logging.WARNING)
    assert set_log_level("inherited", LOGGER) == "debug"
    assert set_log_level("info", "") == "error"
    assert not logging.getLogger(LOGGER).isEnabledFor(logging.DEBUG)


def test_without_a_level_nothing_changes() -> None:
    set_log_level("error", "")
    assert set_log_level("", "") == "error"
    assert set_log_level("", "") == "error"


@pytest.mark.parametrize(
    ("level", "logger"),
    [("loud", ""), ("DEBUG", ""), ("10", ""), ("notset", ""), ("inherited", ""), ("loud", LOGGER)],
)
def test_a_level_that_does_not_exist_is_refused(level: str, logger: str) -> None:
    before = [logging.getLogger().level, logging.getLogger(LOGGER).level]
    with pytest.raises(InvalidArgument, match="not a log level"):
        set_log_level(level, logger)
    assert [logging.getLogger().level, logging.getLogger(LOGGER).level] == before


def test_whoever_asks_makes_no_loggers() -> None:
    """They stay for good: a stranger could fill the memory with them."""
    known = set(logging.root.manager.loggerDict)
    for level in ("debug", ""):
        with pytest.raises(InvalidArgument, match="has no logger"):
            set_log_level(level, "no.such.logger")
    assert set(logging.root.manager.loggerDict) == known


def test_a_change_is_logged_with_its_origin(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[common_pb2.CommandSetLogLevelResponse] = []
    command = common_pb2.CommandSetLogLevel(level="debug", logger=LOGGER)
    run_handler(
        LOG_LEVEL_HANDLERS,
        "set_log_level",
        [(command, Reply(answers.append, None, "ipv4:10.0.0.7"))],
        lambda error, reply: reply.fail(error),
    )
    assert (
        "ipv4:10.0.0.7 set the log level of magnetar_core.server.log_levels to debug" in caplog.text
    )
    (answer,) = answers
    assert answer.previous_level == "inherited"
