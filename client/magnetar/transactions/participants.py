"""Everything that a client sends and acknowledges in a transaction.

A participant has two parts: its sender or acks, which send commands to its broker, and its
enrollment, which names it to the coordinator. Nothing is sent before the transaction has its TxnID.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.transactions.begun import Begun
from magnetar.transactions.enrollment import Enrollment
from magnetar.transactions.transaction_part import Count, TransactionPart, counts_to_wire
from magnetar.transactions.writer_protocols import Sender, Writer
from magnetar_core.errors import MagnetarError
from magnetar_core.ids import Participant, PartitionName, SubscriptionName, TxnID
from magnetar_core.transport.columns.participants import Counted


class Participants:
    """The participants of a transaction.

    Attributes:
        writers: those that send or acknowledge in it.
        senders: those of them that send.
    """

    # Made when the coordinator has to be told of more than the beginning has told.
    _enrollment: Enrollment | None = None
    _confirms = False
    # Whether nothing more comes: what is collected leaves as soon as it may.
    _is_complete = False
    # Whether plain sends were told to come after it.
    _leads = False
    _begun: Begun | None = None

    def __init__(self) -> None:
        self.writers: list[Writer] = []
        self.senders: list[Sender] = []

    def __len__(self) -> int:
        return len(self.writers)

    @property
    def names(self) -> tuple[Participant, ...]:
        """The partitions to which it sends, and the subscriptions on which it acknowledges."""
        return tuple([writer.name for writer in self.writers])

    def add_sender(self, sender: Sender) -> None:
        """Add a partition to which a producer sends."""
        self.senders.append(sender)
        self.add(sender)

    def add(self, writer: Writer) -> None:
        """Add a partition on which a consumer acknowledges."""
        self.writers.append(writer)
        if self._begun is not None:
            self._enroll(self._begun).add(writer.name)
            writer.begin(self._begun)

    def begin(
        self,
        begun: Begun,
        taking_part: Sequence[Participant],
        on_failed: Callable[[MagnetarError], None],
    ) -> None:
        """Send commands from now on, since the transaction has begun.

        Args:
            taking_part: the participants that the coordinator knows already.
            on_failed: called when the coordinator does not take a participant.
        """
        self._begun = begun
        self._taking_part, self._on_failed = taking_part, on_failed
        if self._confirms:
            self._enroll(begun).confirm_soon()
        for writer in self.writers[len(taking_part) :]:
            self._enroll(begun).add(writer.name)
        for writer in self.writers:
            writer.begin(begun)
        if self._is_complete:
            self._send_all()
        else:
            for writer in self.writers:
                writer.send_soon()

    def confirm_soon(self) -> None:
        """Have the coordinator confirm all participants, since a caller waits for that."""
        self._confirms = True
        if self._begun is not None:
            self._enroll(self._begun).confirm_soon()

    def _enroll(self, begun: Begun) -> Enrollment:
        if self._enrollment is None:
            self._enrollment = Enrollment(begun, self._taking_part, self._on_failed)
        return self._enrollment

    async def enrolled(self) -> None:
        """Wait until the coordinator knows all participants, or on_failed was called."""
        if self._enrollment is not None:
            await self._enrollment.answered()

    async def drain(self) -> None:
        """Wait until everything sent is confirmed or has failed, and all are enrolled."""
        # The last one first: mostly it is answered last, and then no other is left to wait for.
        for writer in reversed(self.writers):
            if writer.has_unanswered:
                await writer.drain()
        if self._enrollment is not None and not self._enrollment.is_answered:
            await self._enrollment.answered()

    def complete(self) -> None:
        """Send everything that is collected as soon as it may leave: nothing more comes.

        Plain sends of the same producers to the same partitions were sent before the commit, so
        they come before its markers.
        """
        self._is_complete = True
        if self._begun is not None:
            self._send_all()

    async def flush(self) -> None:
        """Drain, and wait for the plain sends that come before the commit."""
        await self.drain()
        for sender in self.senders:
            plain = sender.plain
            if plain.has_unanswered and sender.failure is None:
                await plain.drain()

    def _send_all(self) -> None:
        for sender in self.senders:
            sender.plain.send_collected()
        for writer in self.writers:
            writer.send_collected()

    def abandon(self, error: MagnetarError) -> None:
        """Drop buffered messages; answers that are under way still count."""
        for writer in self.writers:
            writer.abandon(error)

    def give_up(self, error: MagnetarError) -> None:
        """Fail everything that is not confirmed, now."""
        for writer in self.writers:
            writer.give_up(error)

    @property
    def _counts(self) -> list[Count]:
        return [(one.name, one.writer_id, one.confirmed_count) for one in self.writers]

    def counts(self) -> list[Counted]:
        """Return the counts of confirmed messages and acks, for a commit (rule g)."""
        return counts_to_wire(self._counts)

    def part(self, txn_id: TxnID, seen_stamp: int) -> TransactionPart:
        """Return the counts that were confirmed to this client."""
        counts = self._counts
        return TransactionPart(
            txn_id,
            tuple([(at, writer, n) for at, writer, n in counts if isinstance(at, PartitionName)]),
            tuple(
                [(at, writer, n) for at, writer, n in counts if isinstance(at, SubscriptionName)]
            ),
            seen_stamp,
        )

    def lead_plain_sends(self) -> None:
        """Put the producers' later plain sends behind this transaction's messages (order, k).

        It has an effect only once: if the outcome is learned late, later transactions lead by then.
        """
        if self._leads:
            return
        self._leads = True
        for sender in self.senders:
            sender.lead_plain_sends()

    def release(self, *, committed: bool) -> None:
        """Tell producers and consumers that the transaction has ended, and forget them."""
        if self._enrollment is not None:
            self._enrollment.seal()
        if self._begun is not None:
            if committed:
                self.lead_plain_sends()
            elif not self._leads:
                # Nothing of it becomes visible: whatever the producer followed before still leads.
                for sender in self.senders:
                    sender.pass_on()
        for writer in self.writers:
            writer.on_ended(committed)
        self.writers.clear()
        self.senders.clear()
        # It refers to the transaction, which refers to this.
        self._on_failed = _too_late


def _too_late(error: MagnetarError) -> None:
    """Ignore that a participant was not taken: the transaction has ended here."""
