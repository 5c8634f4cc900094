"""Clients are told their task, heard out, and gone at the end."""

from __future__ import annotations

from typing import Any

import psutil
import pytest
from benchmarks.peers.conversation import ClientFailed, conversation
from tests.peers.servers import Servers, client

PATIENCE_S = 60.0


def heard(
    script: str, servers: Servers | None = None, patience_s: float = PATIENCE_S
) -> list[dict[str, Any]]:
    spoken = conversation(client(script), servers or Servers(), {"topic": "a=b"}, patience_s)
    return [said for said, _ in spoken]


def test_each_round_gives_what_the_client_said_of_it() -> None:
    script = """
for count in (3, 4):
    say("begin"); say("end"); say_result(count=count, variant=told["topic"])
"""
    assert [(one["count"], one["variant"]) for one in heard(script)] == [(3, "a=b"), (4, "a=b")]


def test_the_servers_are_watched_from_the_beginning_of_a_round_to_its_end() -> None:
    """This process stands for the server; before and after the round it uses more."""
    script = """
say("begin"); say("end"); say_result()
"""
    ((_, sampled),) = conversation(client(script), Servers(), {}, PATIENCE_S)
    assert sampled.memory_bytes > 1 << 20
    assert 0 <= sampled.server_cpu_s < 10


def test_what_libraries_print_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    script = """
print("a warning")
say("begin"); say("end"); say_result()
"""
    assert len(heard(script)) == 1
    assert capsys.readouterr().err == "a warning\n"


def test_a_kill_is_carried_out_answered_and_timed_here() -> None:
    """The client cannot know when its server was killed: its own 0.5 s are replaced."""
    script = """
say("begin"); say("kill")
answer = sys.stdin.readline()
say("back"); say("end"); say_result(variant=answer.strip())
"""
    servers = Servers()
    (said,) = heard(script, servers)
    assert servers.kills == 1
    assert said["variant"] == "killed"
    assert said["seconds"] != 0.5
    assert said["latencies_ms"]["kill to first produce"]["p50"] == said["seconds"] * 1_000


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("say('begin'); say('end'); say_result(); sys.exit(3)", "status 3"),
        ("say('begin'); say('end')", "without a result"),
        ("say('end')", "end came out of turn"),
        ("say_result()", "result came out of turn"),
        ("say('begin'); say('farewell')", "farewell came out of turn"),
    ],
)
def test_a_client_that_does_not_finish_has_failed(script: str, reason: str) -> None:
    with pytest.raises(ClientFailed, match=reason):
        heard(script)


def test_a_client_that_hangs_is_killed() -> None:
    with pytest.raises(ClientFailed, match="status -9"):
        heard("say('begin'); sys.stdin.readline()", patience_s=0.3)


def test_a_client_is_gone_when_nobody_listens_any_more() -> None:
    script = """
say("begin"); say("end"); say_result(count=os.getpid())
sys.stdin.readline()
"""
    spoken = conversation(client(script), Servers(), {}, PATIENCE_S)
    said, _ = next(spoken)
    assert psutil.pid_exists(said["count"])
    spoken.close()
    assert not psutil.pid_exists(said["count"])
