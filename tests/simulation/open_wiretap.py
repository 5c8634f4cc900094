"""Listens where frames enter and leave the servers, and knows which transactions are open.

A transaction that was begun is open until somebody asks for its end, or its time is over. Until
then its sends and acks may be refused for much, but never because it had ended, or as nobody's; and
no participant is told to end it. Those of identities and names are left out: others end them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from magnetar_core.wire import common_pb2
from magnetar_core.wire import service_pb2 as pb

TxnKey = tuple[int, int]
Request = tuple[int, int]
# Servers count milliseconds.
TICK_SECONDS = 0.002
WRITES = ("send", "ack")
# What clients, strangers too, do not send.
COORDINATORS_OWN = ("low_watermark", "take_incarnation", "txns_issued")
ENDS_HERE = ("end_txn_on_partition", "end_txn_on_subscription")
OVER = (common_pb2.INVALID_TXN_STATE, common_pb2.TXN_NOT_FOUND, common_pb2.TXN_FORGOTTEN)


class OpenWiretap:
    """Args:
    time: virtual seconds.
    violation: ends the run; invariant and text.
    is_lost: whether a crash took the record of a transaction that was told before it was durable.
    """

    def __init__(
        self,
        time: Callable[[], float],
        violation: Callable[[str, str], NoReturn],
        is_lost: Callable[[TxnKey], bool] = lambda txn: False,
    ) -> None:
        self._time = time
        self._violation = violation
        self._is_lost = is_lost
        # When the requests that begin transactions arrived.
        self._begun: dict[Request, float] = {}
        # Of those that are open: when their time is over.
        self._deadlines: dict[TxnKey, float] = {}
        # Ends that were asked for before anybody heard that the transaction had begun.
        self._asked: set[TxnKey] = set()
        # Links of coordinators: strangers may end what they like, since nobody says who he is.
        self._coordinators: set[int] = set()
        self._writes: dict[Request, TxnKey] = {}

    def on_request(self, link: int, frame: pb.Frame) -> None:
        """A frame is about to be handled by a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            request = link, command.request_id
            if name == "new_txn":
                begin = command.new_txn
                if not begin.HasField("identity") and not begin.HasField("named_sequence"):
                    self._begun.setdefault(request, self._time())
            elif name in ("end_txn", "abort_hanging_txn", "accept_txn_loss"):
                self._end_asked(_txn(getattr(command, name).txn_id))
            elif name in WRITES:
                body = getattr(command, name)
                if body.HasField("txn_id"):
                    self._writes[request] = _txn(body.txn_id)
            elif name in COORDINATORS_OWN:
                self._coordinators.add(link)
            elif name in ENDS_HERE:
                txn = _txn(getattr(command, name).txn_id)
                if link not in self._coordinators:
                    self._end_asked(txn)
                elif self._is_open(txn):
                    self._violation("f", f"{name} of {txn}: nobody has asked for it")

    def on_reply(self, link: int, frame: pb.Frame) -> None:
        """A frame leaves a server."""
        for command in frame.commands:
            name = command.WhichOneof("body")
            request = link, command.request_id
            if name == "new_txn_response":
                begun = self._begun.pop(request, None)
                if begun is not None:
                    reply = command.new_txn_response
                    deadline = begun + reply.txn_timeout_ms / 1000 - TICK_SECONDS
                    txn = _txn(reply.txn_id)
                    # A repeated call is told what the first one began.
                    if txn not in self._asked:
                        self._deadlines.setdefault(txn, deadline)
            elif name == "abort_expelled":
                for wire in command.abort_expelled.txn_ids:
                    self._end_asked(_txn(wire))
            elif name == "error":
                written = self._writes.pop(request, None)
                if written is not None and command.error.code in OVER and self._is_open(written):
                    self._violation(
                        "10", f"{written} is open, and is refused: {command.error.message}"
                    )
            else:
                self._writes.pop(request, None)

    def on_closed(self, link: int) -> None:
        """A server was told that a link is gone."""
        for known in (self._begun, self._writes):
            for request in [one for one in known if one[0] == link]:
                del known[request]
        self._coordinators.discard(link)

    def _end_asked(self, txn: TxnKey) -> None:
        self._deadlines.pop(txn, None)
        self._asked.add(txn)

    def _is_open(self, txn: TxnKey) -> bool:
        return self._time() < self._deadlines.get(txn, 0.0) and not self._is_lost(txn)


def _txn(wire: common_pb2.TxnId) -> TxnKey:
    return (wire.most_bits, wire.least_bits)
