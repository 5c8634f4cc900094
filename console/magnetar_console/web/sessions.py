"""Sessions of browsers: a cookie, the token that a viewer has signed in with, and page tokens."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from random import Random

from starlette.requests import Request
from starlette.responses import Response

from magnetar_console.settings import SESSION_IDLE_MS, SESSIONS_MAX
from magnetar_core.clock import Clock

_ID_CHARACTERS = 64


@dataclass(slots=True)
class _Signed:
    token: str
    used_ms: float


class Sessions:
    """Sessions of a console. They end with the process.

    A page carries a token that is made of its session's id: another site can send a request with
    the cookie, but cannot read the page.

    Args:
        cookie: the cookie's name; browsers send it to all ports of a host.
        secure: whether browsers may send it over HTTPS only.
        random: a source that cannot be guessed.
    """

    def __init__(self, cookie: str, *, secure: bool, clock: Clock, random: Random) -> None:
        self._cookie = cookie
        self._secure = secure
        self._clock = clock
        self._random = random
        self._key = random.randbytes(32)
        self._signed: dict[str, _Signed] = {}

    def id_of(self, request: Request) -> str:
        """Return the session's id; empty: the browser has none."""
        text = request.cookies.get(self._cookie, "")
        return text if len(text) == _ID_CHARACTERS and text.isascii() and text.isalnum() else ""

    def new_id(self) -> str:
        """Return the id of a new session."""
        return self._random.randbytes(_ID_CHARACTERS // 2).hex()

    def set_cookie(self, response: Response, session: str) -> None:
        """Have the browser keep a session's id."""
        response.set_cookie(
            self._cookie, session, httponly=True, samesite="strict", secure=self._secure, path="/"
        )

    def page_token(self, session: str) -> str:
        """Return the token that pages of a session send with what they ask to be done."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def has_page_token(self, session: str, token: str) -> bool:
        """Return whether a token is that of the session's pages."""
        return bool(session) and hmac.compare_digest(
            self.page_token(session).encode(), token.encode()
        )

    def token(self, session: str) -> str | None:
        """Return the token for the servers with which a viewer has signed in; None: none."""
        signed = self._signed.get(session)
        if signed is None:
            return None
        now_ms = self._clock.monotonic_ms()
        if now_ms - signed.used_ms > SESSION_IDLE_MS:
            del self._signed[session]
            return None
        signed.used_ms = now_ms
        return signed.token

    def sign_in(self, token: str) -> str:
        """Begin a session with a token, and return its id. The oldest one may end for it."""
        while len(self._signed) >= SESSIONS_MAX:
            oldest = min(self._signed, key=lambda one: self._signed[one].used_ms)
            del self._signed[oldest]
        session = self.new_id()
        self._signed[session] = _Signed(token, self._clock.monotonic_ms())
        return session

    def sign_out(self, session: str) -> None:
        """End a session."""
        self._signed.pop(session, None)
