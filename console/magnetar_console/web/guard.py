"""The guard of all requests: what they must show, and what browsers are told.

A browser sends requests to the console for any site that it visits. So each request names the
console in Host (otherwise another site has pointed its name here: DNS rebinding), and one that
changes something comes from a page of the console, with the page's token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_ADDED: Final = [(name.encode(), text.encode()) for name, text in _HEADERS.items()]
_ADDED_NAMES: Final = {name for name, _ in _ADDED}
SAFE_METHODS: Final = ("GET", "HEAD")
BODY_BYTES_MAX: Final = 64 << 10


class Guard:
    """Refuses requests that do not come from a page of this console, or from a person.

    Args:
        hosts: what the header Host may say, in lower case.
        scheme: "http" or "https".
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str], scheme: str) -> None:
        self._app = app
        self._hosts = hosts
        self._scheme = scheme

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [one for one in message["headers"] if one[0] not in _ADDED_NAMES]
                message["headers"] = [*kept, *_ADDED]
            await send(message)

        refusal = self._refusal(scope["method"], Headers(scope=scope))
        if refusal is not None:
            await PlainTextResponse(refusal, 403)(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _refusal(self, method: str, headers: Headers) -> str | None:
        """Return why a request is refused; None: it is not."""
        host = headers.get("host", "").lower()
        if host not in self._hosts:
            return (
                f"The console is not known as {host[:100]!r}. If this is its name, start it with"
                " --name.\n"
            )
        origin = headers.get("origin")
        if origin is not None and not self._is_own(origin, host):
            return "The request comes from another site.\n"
        is_foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none")
        # A link on another page may lead here.
        may_come = method in SAFE_METHODS and headers.get("sec-fetch-dest") == "document"
        if is_foreign and not may_come:
            return "The request comes from another site.\n"
        if method not in SAFE_METHODS:
            if origin is None:
                return "The request does not say which page it comes from.\n"
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit() and len(length) < 9):
                return "The request does not say how long it is.\n"
            if int(length) > BODY_BYTES_MAX:
                return "The request is too long.\n"
        return None

    def _is_own(self, origin: str, host: str) -> bool:
        return origin.lower() == f"{self._scheme}://{host}"
