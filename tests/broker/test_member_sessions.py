"""Whose right to be a member is asked for, and on which conversation."""

from __future__ import annotations

from magnetar_broker.groups.member_sessions import MemberSessions
from magnetar_core.errors import AuthorizationFailed, MagnetarError
from magnetar_core.server.commands import CommandSession, Conversation


class Scene:
    """A member whose right can be withdrawn."""

    def __init__(self) -> None:
        self.error: MagnetarError | None = None
        self.turned_out: list[tuple[str, str, MagnetarError]] = []
        self.sessions = MemberSessions(lambda *told: self.turned_out.append(told))

    def complaint(self) -> MagnetarError | None:
        return self.error

    def withdraw(self) -> MagnetarError:
        self.error = AuthorizationFailed("no more")
        return self.error


def session() -> CommandSession:
    return CommandSession({}, Conversation(write=lambda _: None), lambda _, __: None)


def test_a_member_is_turned_out_once() -> None:
    scene, first = Scene(), session()
    scene.sessions.joined("group", "alice", first, scene.complaint)
    first.look()
    assert scene.turned_out == []
    error = scene.withdraw()
    first.look()
    first.look()
    assert scene.turned_out == [("group", "alice", error)]


def test_the_right_goes_with_the_member_to_its_next_conversation() -> None:
    scene, first, second = Scene(), session(), session()
    scene.sessions.joined("group", "alice", first, scene.complaint)
    scene.sessions.heard("group", "alice", second)
    scene.withdraw()
    first.look()
    assert scene.turned_out == []
    second.look()
    assert len(scene.turned_out) == 1


def test_nobody_asks_for_members_that_have_left_or_without_access_control() -> None:
    scene, first = Scene(), session()
    scene.sessions.joined("group", "alice", first, scene.complaint)
    scene.sessions.gone("group", "alice")
    scene.sessions.joined("group", "bob", first, None)
    scene.withdraw()
    first.look()
    assert scene.turned_out == []


def test_a_conversation_that_has_ended_turns_nobody_out() -> None:
    scene, first = Scene(), session()
    scene.sessions.joined("group", "alice", first, scene.complaint)
    scene.withdraw()
    first.on_closed()
    first.look()
    assert scene.turned_out == []
