"""SaslHandshake and SaslAuthenticate: a client shows a token, at the beginning and again later."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from magnetar_core.errors import AuthenticationFailed, MagnetarError
from magnetar_kafka.answer import Answer
from magnetar_kafka.error_codes import ErrorCode
from magnetar_kafka.request import Handle, Request
from magnetar_kafka.security.sasl import MECHANISMS, shown_token
from magnetar_kafka.wire import apis

log = logging.getLogger(__name__)


class SaslRequests:
    """Handlers of the requests by which a client shows who it is."""

    @property
    def handlers(self) -> Mapping[int, Handle]:
        """The handler of each kind of request."""
        return {
            apis.SASL_HANDSHAKE.key: self._handshake,
            apis.SASL_AUTHENTICATE.key: self._authenticate,
        }

    async def _handshake(self, request: Request) -> Answer:
        visitor = request.visitor
        known = MECHANISMS if visitor.takes_tokens else ()
        code = ErrorCode.NONE
        if request.body["mechanism"] in known:
            visitor.mechanism = request.body["mechanism"]
        else:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        message = {"error_code": code, "mechanisms": list(known)}
        return Answer(body=lambda: message, codes=(code,), is_last=bool(code))

    async def _authenticate(self, request: Request) -> Answer:
        visitor = request.visitor
        mechanism, visitor.mechanism = visitor.mechanism, ""
        if not mechanism:
            return _refusal(ErrorCode.ILLEGAL_SASL_STATE, "SaslHandshake comes first")
        try:
            lasts_ms = visitor.show(shown_token(mechanism, request.body["auth_bytes"]))
        except AuthenticationFailed as error:
            log.info("a Kafka client is not let in: %s", error)
            return _refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        except MagnetarError as error:
            return _refusal(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        message = {
            "error_code": ErrorCode.NONE,
            "error_message": None,
            "auth_bytes": b"",
            "session_lifetime": lasts_ms,
        }
        return Answer(body=lambda: message)


def _refusal(code: ErrorCode, text: str) -> Answer:
    message = {"error_code": code, "error_message": text, "auth_bytes": b""}
    return Answer(body=lambda: message, codes=(code,), is_last=True)
