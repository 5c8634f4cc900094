"""The application: which address does what."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from magnetar import AuthenticationFailed, MagnetarError
from magnetar_console.looks.view import View
from magnetar_console.viewers import TooManyViewers, Viewers
from magnetar_console.web.asking import Asking
from magnetar_console.web.guard import Guard
from magnetar_console.web.pages import PAGES, Pages
from magnetar_console.web.sessions import Sessions
from magnetar_core.config import InvalidConfig, is_loopback

log = logging.getLogger("magnetar_console")

TOKEN_CHARACTERS_MAX = 16_384
PIECE_CHARACTERS: Final = 1 << 16


class Web:
    """Pages, events, and what pages ask for.

    Args:
        hosts: what the header Host may say.
        scheme: "http" or "https".
        asking: answers to what pages ask for.
    """

    def __init__(
        self,
        viewers: Viewers,
        sessions: Sessions,
        pages: Pages,
        *,
        hosts: frozenset[str],
        scheme: str,
        asking: Asking,
    ) -> None:
        self._viewers = viewers
        self._sessions = sessions
        self._pages = pages
        self._scheme = scheme
        self.app = Starlette(
            routes=[
                *(Route(page.path, self._page(kind)) for kind, page in PAGES.items()),
                Route("/events", self._events),
                Route("/sign-in", self._sign_in_page, methods=["GET"]),
                Route("/sign-in", self._sign_in, methods=["POST"]),
                Route("/sign-out", self._sign_out, methods=["POST"]),
                *asking.routes,
                Mount("/static", StaticFiles(packages=[("magnetar_console", "static")])),
            ],
            middleware=[Middleware(Guard, hosts=hosts, scheme=scheme)],
        )

    def _page(self, kind: str) -> Callable[[Request], Awaitable[Response]]:
        async def page(request: Request) -> Response:
            session = self._sessions.id_of(request) or self._sessions.new_id()
            token = self._sessions.token(session)
            page_token = self._sessions.page_token(session)
            status = 200
            try:
                view = View.parse(kind, request.query_params)
                if await self._has_to_sign_in(token):
                    target = request.url.path + (
                        f"?{request.url.query}" if request.url.query else ""
                    )
                    text = self._pages.sign_in(page_token=page_token, problem="", back=target)
                    status = 401
                else:
                    text = self._pages.view(
                        view, page_token=page_token, signed_in=token is not None
                    )
            except ValueError as error:
                text, status = self._problem(page_token, "There is no such page", str(error)), 404
            except TooManyViewers as error:
                text, status = self._problem(page_token, "Too many viewers", str(error)), 503
            response = HTMLResponse(text, status)
            self._sessions.set_cookie(response, session)
            return response

        return page

    def _problem(self, page_token: str, title: str, text: str) -> str:
        return self._pages.problem(page_token=page_token, title=title, text=text)

    async def _has_to_sign_in(self, token: str | None) -> bool:
        """Return whether the servers refuse a token. Other failures are for the page to show."""
        hub = self._viewers.hub(token)
        if hub.is_connected:
            return False
        try:
            await hub.check()
        except AuthenticationFailed:
            return True
        except (MagnetarError, InvalidConfig):
            return False
        return False

    async def _events(self, request: Request) -> Response:
        kind = request.query_params.get("view", "")
        token = self._sessions.token(self._sessions.id_of(request))
        try:
            view = View.parse(kind, request.query_params)
            events = self._viewers.events(token, view, request.headers.get("last-event-id", ""))
        except ValueError as error:
            return PlainTextResponse(str(error), 404)
        except TooManyViewers as error:
            return PlainTextResponse(str(error), 503)
        return StreamingResponse(in_pieces(events), media_type="text/event-stream")

    async def _sign_in_page(self, request: Request) -> Response:
        session = self._sessions.id_of(request) or self._sessions.new_id()
        page_token = self._sessions.page_token(session)
        response = HTMLResponse(self._pages.sign_in(page_token=page_token, problem="", back="/"))
        self._sessions.set_cookie(response, session)
        return response

    async def _sign_in(self, request: Request) -> Response:
        session = self._sessions.id_of(request)
        form = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=10)
        given = {name: values[0] for name, values in form.items()}
        if not self._sessions.has_page_token(session, given.get("page_token", "")):
            return PlainTextResponse("The page is too old: load it again.\n", 403)
        token, back = given.get("token", "").strip(), _own_path(given.get("back", "/"))
        problem = await self._problem_with(token, request)
        if problem:
            page_token = self._sessions.page_token(session)
            text = self._pages.sign_in(page_token=page_token, problem=problem, back=back)
            return HTMLResponse(text, 401)
        self._sessions.sign_out(session)
        # A new id: one that was known before the viewer signed in is worth nothing.
        response = RedirectResponse(back, 303)
        self._sessions.set_cookie(response, self._sessions.sign_in(token))
        return response

    async def _problem_with(self, token: str, request: Request) -> str:
        """Return why a viewer cannot sign in with a token; empty: nothing is wrong."""
        if self._scheme != "https" and not is_loopback(request.url.hostname or ""):
            return "The token would cross the network in plain text. Use HTTPS."
        if not token or len(token) > TOKEN_CHARACTERS_MAX:
            return "Paste the token (a JWT), as one line."
        try:
            await self._viewers.hub(token).check()
        except (MagnetarError, InvalidConfig) as error:
            return f"{type(error).__name__}: {error}"
        except TooManyViewers as error:
            return str(error)
        return ""

    async def _sign_out(self, request: Request) -> Response:
        session = self._sessions.id_of(request)
        form = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=10)
        if not self._sessions.has_page_token(session, form.get("page_token", [""])[0]):
            return PlainTextResponse("The page is too old: load it again.\n", 403)
        self._sessions.sign_out(session)
        return RedirectResponse("/sign-in", 303)


def _own_path(text: str) -> str:
    """Return a path of the console; any other text becomes that of the first page."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and text.isprintable() and "\\" not in text else "/"


async def in_pieces(events: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """Yield long events in pieces: a viewer who reads slowly holds one of them, not megabytes."""
    async with aclosing(events):
        async for event in events:
            for start in range(0, len(event), PIECE_CHARACTERS):
                yield event[start : start + PIECE_CHARACTERS]
