"""The send or the ack that made a transaction fail. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar_core.ids import PartitionName, SubscriptionName


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A send or an ack that did not succeed.

    Attributes:
        topic: the topic's name; empty: not known.
        partition: the partition's number; None: not known, or not chosen yet.
        subscription: for an ack, the name of the subscription; empty: it is a send.
    """

    topic: str
    partition: int | None = None
    subscription: str = ""

    @classmethod
    def send_to(cls, name: PartitionName) -> FailedCall:
        """A send to a partition."""
        return cls(name.topic, name.partition)

    @classmethod
    def ack_on(cls, name: SubscriptionName) -> FailedCall:
        """An ack on a partition."""
        return cls(name.topic, name.partition, name.subscription)

    def __str__(self) -> str:
        call = f"an ack of {self.subscription!r} on" if self.subscription else "a send to"
        partition = "a partition" if self.partition is None else f"partition {self.partition}"
        return f"{call} {partition} of {self.topic!r}" if self.topic else f"{call} {partition}"

    @property
    def details(self) -> dict[str, object]:
        """Known facts about the call, as details of an error."""
        facts = {
            "topic": self.topic or None,
            "partition": self.partition,
            "subscription": self.subscription or None,
        }
        return {name: value for name, value in facts.items() if value is not None}
