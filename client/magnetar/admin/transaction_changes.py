"""Changes among transactions since an earlier answer, for programs that show them."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

from magnetar.admin.transaction_descriptions import TransactionDescription
from magnetar.link.connection_base import ConnectionBase
from magnetar_core.ids import TxnID
from magnetar_core.wire import transaction_pb2

ROWS_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class TransactionChanges:
    """Changes of transactions. Give them to the next call of `changes()`.

    Attributes:
        transactions: live transactions that have changed, as they are now.
        ended: transactions that have ended at all participants, by their outcomes; also such as
            began after the last answer.
        anew: TCIDs of coordinators that have told all of their live transactions. Forget what was
            known of the others of these coordinators.
        places: where each coordinator goes on, by TCID.
    """

    transactions: tuple[TransactionDescription, ...]
    ended: tuple[TransactionDescription, ...]
    anew: frozenset[int]
    places: Mapping[int, bytes] = field(repr=False)

    def apply_to(self, live: MutableMapping[TxnID, TransactionDescription]) -> None:
        """Bring the live transactions that a program knows up to date."""
        for txn_id in [one for one in live if one.tcid in self.anew]:
            del live[txn_id]
        for one in self.transactions:
            live[one.txn_id] = one
        for one in self.ended:
            live.pop(one.txn_id, None)


class CoordinatorChanges:
    """Answers of one coordinator, until it has told everything.

    Attributes:
        place: where it goes on; None: it was not asked yet.
        is_anew: whether it has told all of its live transactions.
        live: live transactions that have changed; the values are the latest ones.
        ended: transactions that have ended, in their order.
    """

    def __init__(self, place: bytes | None) -> None:
        self.place = place
        self.is_anew = False
        self.live: dict[TxnID, TransactionDescription] = {}
        self.ended: list[TransactionDescription] = []

    async def ask(self, coordinator: ConnectionBase) -> None:
        """Ask until it has told everything."""
        while True:
            command = transaction_pb2.CommandListTxnChanges(limit=ROWS_AT_ONCE)
            if self.place is not None:
                command.place.ParseFromString(self.place)
            answer = await coordinator.request(command)
            self._take(answer)
            if not answer.truncated:
                return

    def _take(self, answer: transaction_pb2.CommandListTxnChangesResponse) -> None:
        self.place = answer.place.SerializeToString()
        if answer.anew:
            self.is_anew = True
            self.live.clear()
        for wire in answer.transactions:
            one = TransactionDescription.from_wire(wire)
            self.live[one.txn_id] = one
        for wire in answer.ended:
            one = TransactionDescription.from_wire(wire)
            self.live.pop(one.txn_id, None)
            self.ended.append(one)
