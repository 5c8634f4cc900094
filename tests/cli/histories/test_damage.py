"""Damaged lines are told from violations: the protocol is not blamed for a lost line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.histories.recorded import SECRET, Recorded, line_of
from tests.json_output import read_json

from magnetar_cli.check.history.judging import Verdict
from magnetar_cli.program import cli

Lines = list[bytes]


def lose(lines: Lines, place: int) -> Lines | None:
    return [*lines[:place], *lines[place + 1 :]]


def double(lines: Lines, place: int) -> Lines | None:
    return [*lines[:place], lines[place], *lines[place:]]


def swap(lines: Lines, place: int) -> Lines | None:
    if place + 1 == len(lines):
        return None
    return [*lines[:place], lines[place + 1], lines[place], *lines[place + 2 :]]


def change(lines: Lines, place: int) -> Lines | None:
    """Change a digit in the middle: it stays JSON, mostly."""
    text = bytearray(lines[place])
    middle = len(text) // 2
    text[middle] ^= 1
    return [*lines[:place], bytes(text), *lines[place + 1 :]]


def truncate(lines: Lines, place: int) -> Lines | None:
    """All that follows is lost, too."""
    return lines[:place]


def tear(lines: Lines, place: int) -> Lines | None:
    return [*lines[:place], lines[place][: len(lines[place]) // 2]]


def test_the_history_of_real_servers_is_accepted(recorded: Recorded, tmp_path: Path) -> None:
    report = recorded.judged(tmp_path)
    assert report.verdict is Verdict.ACCEPTED, report
    assert report.event_count == sum(one.judged_count for one in report.servers) > 50
    (broker,) = (one for one in report.servers if one.server == "broker 0")
    assert [life.is_closed for life in broker.lives] == [False, True]
    assert any("there is no line that says how it ended" in why for why in report.unjudged)
    events = {json.loads(text)["event"] for lines in recorded.files.values() for text in lines}
    assert {"EndApplied", "AcksPending", "Finished", "PlainSent", "MarkerWritten"} <= events


@pytest.mark.parametrize("hours", [-1, 1, 1_000])
@pytest.mark.parametrize("kind", ["broker", "coordinator"])
def test_clocks_that_differ_change_nothing(
    recorded: Recorded, tmp_path: Path, kind: str, hours: int
) -> None:
    """Times are hints. What comes before what follows from the events."""

    def shifted(text: bytes) -> bytes:
        line = json.loads(text)
        return line_of(line | {"time": line["time"] + (hours * 3_600_000 << 16)})

    files = {
        name: [shifted(text) for text in lines] if name.startswith(kind) else lines
        for name, lines in recorded.files.items()
    }
    report = Recorded(files).judged(tmp_path)
    assert report.verdict is Verdict.ACCEPTED, report


def test_the_command_says_so_and_exits_with_its_status(
    recorded: Recorded, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.judged(tmp_path)
    for arguments in ([], ["--json"]):
        with pytest.raises(SystemExit) as left:
            cli(["check", "--history", str(tmp_path), *arguments])
        assert left.value.code == 0
        shown = capsys.readouterr().out
        if arguments:
            assert read_json("check", shown)["verdict"] == Verdict.ACCEPTED.name
        else:
            assert "the servers did what the protocol allows" in shown
    name, place = recorded.find("Finished")
    changed = recorded.with_event(name, place, lambda event: event.update(is_commit=False))
    changed.judged(tmp_path)
    with pytest.raises(SystemExit) as left:
        cli(["check", "--history", str(tmp_path)])
    assert left.value.code == 17
    shown = capsys.readouterr().out
    assert f"line {place} comes next" in shown
    assert "before: coordinator 0" in shown


def test_no_line_has_what_is_in_messages(recorded: Recorded) -> None:
    for lines in recorded.files.values():
        assert SECRET.encode() not in b"".join(lines)


@pytest.mark.parametrize("damage", [lose, double, swap, change])
def test_a_damaged_line_is_reported_as_damage_wherever_it_is(
    recorded: Recorded, tmp_path: Path, damage: Callable[[Lines, int], Lines | None]
) -> None:
    last_life = max(name for name in recorded.files if name.startswith("broker"))
    for name, place in recorded.places():
        lines = damage(list(recorded.files[name]), place)
        if lines is None:
            continue
        report = recorded.with_lines(name, lines).judged(tmp_path)
        is_end = place + 1 == len(recorded.files[name])
        if damage is lose and is_end and not _is_followed(name, last_life):
            # Lines at the end of the last life may have never been: that is said.
            assert report.verdict is Verdict.ACCEPTED
            assert any("no line that says how it ended" in why for why in report.unjudged)
        else:
            assert report.verdict is Verdict.DAMAGED, (name, place, report)


@pytest.mark.parametrize("damage", [truncate, tear])
def test_an_end_that_is_lost_is_no_violation(
    recorded: Recorded, tmp_path: Path, damage: Callable[[Lines, int], Lines | None]
) -> None:
    last_life = max(name for name in recorded.files if name.startswith("broker"))
    for name, place in recorded.places():
        lines = damage(list(recorded.files[name]), place)
        assert lines is not None
        report = recorded.with_lines(name, lines).judged(tmp_path)
        if _is_followed(name, last_life):
            assert report.verdict is Verdict.DAMAGED, (name, place)
        else:
            assert report.verdict in (Verdict.ACCEPTED, Verdict.UNDECIDED), (name, place, report)
            assert any("no line that says how it ended" in why for why in report.unjudged)


def test_a_file_that_is_lost_is_told(recorded: Recorded, tmp_path: Path) -> None:
    for name in recorded.files:
        others = {other: lines for other, lines in recorded.files.items() if other != name}
        directory = tmp_path / name
        directory.mkdir()
        report = Recorded(others).judged(directory)
        assert report.verdict is not Verdict.VIOLATION, (name, report)
        if name.startswith("coordinator"):
            assert report.missing == ["coordinator 0"]


def _is_followed(name: str, last_life: str) -> bool:
    """Whether a later life says which lines there were."""
    return name.startswith("broker") and name != last_life
