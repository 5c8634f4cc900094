"""Answers to pages by POST: to questions that all viewers may ask, and actions with their plans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from json import JSONDecodeError
from typing import Any, Final, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from magnetar import Client, MagnetarError
from magnetar_console.asks import aborting, cuts, hanging, moving, plans, two_phase
from magnetar_console.asks.plans import Planning
from magnetar_console.looks.contents import Show, content
from magnetar_console.viewers import TooManyViewers, Viewers
from magnetar_console.web.sessions import Sessions
from magnetar_core.config import InvalidConfig

PAGE_TOKEN_HEADER: Final = "x-console-token"
# A search or a cut asks all servers.
QUESTIONS_MAX: Final = 4

Question: TypeAlias = Callable[[Client, dict[str, Any]], Awaitable[dict[str, Any]]]

ACTIONS: Final[Mapping[str, Planning]] = {
    "abort": aborting.plan_abort,
    "abort-hanging": hanging.plan_abort,
    "move": moving.plan_moves,
    "decide": two_phase.plan_decision,
    "terminate": two_phase.plan_termination,
}


class Asking:
    """Answers to what pages ask for, with the rights of their viewers.

    Args:
        allow_actions: whether actions are allowed; questions are.
        shows: how the values of topics are shown; those of others by their look.
    """

    def __init__(
        self,
        viewers: Viewers,
        sessions: Sessions,
        *,
        allow_actions: bool,
        shows: Mapping[str, Show],
    ) -> None:
        self._viewers = viewers
        self._sessions = sessions
        self._allow_actions = allow_actions
        self._shows = shows
        self._questions_left = QUESTIONS_MAX
        questions: dict[str, Question] = {
            "hanging": hanging.search,
            "take-cut": cuts.take,
            "describe-cut": cuts.describe,
            "read-cut": self._read_cut,
        }
        self.routes = [
            *(_post(f"/ask/{name}", partial(self._ask, one)) for name, one in questions.items()),
            *(_post(f"/plan/{name}", partial(self._plan, one)) for name, one in ACTIONS.items()),
            *(_post(f"/do/{name}", partial(self._do, one)) for name, one in ACTIONS.items()),
        ]

    async def _read_cut(self, client: Client, body: dict[str, Any]) -> dict[str, Any]:
        topic = body.get("topic")
        show = self._shows.get(topic, content) if isinstance(topic, str) else content
        return await cuts.read(client, body, show)

    async def _ask(self, question: Question, request: Request) -> Response:
        if not self._questions_left:
            return _refused(503, "TooManyViewers", "others are searching: try again in a moment")
        self._questions_left -= 1
        try:
            return await self._answer(request, question)
        finally:
            self._questions_left += 1

    async def _plan(self, planning: Planning, request: Request) -> Response:
        return await self._act(request, partial(plans.tell, planning))

    async def _do(self, planning: Planning, request: Request) -> Response:
        address = request.client.host if request.client else "an unknown address"
        viewer = f"a viewer at {address}"

        async def carry_out(client: Client, body: dict[str, Any]) -> dict[str, Any]:
            return await plans.carry_out(planning, client, body, viewer)

        return await self._act(request, carry_out)

    async def _act(self, request: Request, action: Question) -> Response:
        if not self._allow_actions:
            return _refused(403, "ReadOnly", "the console was started without --allow-actions")
        return await self._answer(request, action)

    async def _answer(self, request: Request, question: Question) -> Response:
        """Answer a page, with the rights of its viewer."""
        session = self._sessions.id_of(request)
        if not self._sessions.has_page_token(session, request.headers.get(PAGE_TOKEN_HEADER, "")):
            return _refused(403, "OldPage", "the page is too old: load it again")
        if request.headers.get("content-type", "") != "application/json":
            return _refused(415, "InvalidArgument", "send JSON")
        try:
            body = await request.json()
        except (JSONDecodeError, UnicodeDecodeError, RecursionError):
            return _refused(400, "InvalidArgument", "this is not JSON")
        if not isinstance(body, dict):
            return _refused(400, "InvalidArgument", "this is not a JSON object")
        try:
            client = await self._viewers.hub(self._sessions.token(session)).client()
            return JSONResponse(await question(client, body))
        except (MagnetarError, InvalidConfig) as error:
            return _refused(409, type(error).__name__, str(error))
        except TooManyViewers as error:
            return _refused(503, "TooManyViewers", str(error))


def _post(path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
    return Route(path, answer, methods=["POST"])


def _refused(status: int, error: str, text: str) -> Response:
    return JSONResponse({"error": error, "text": text}, status)
