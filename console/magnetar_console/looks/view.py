"""Names of views. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from magnetar_core.ids import TxnID

TRANSACTIONS: Final = "transactions"
TRANSACTION: Final = "transaction"
TOPICS: Final = "topics"
TOPIC: Final = "topic"
MESSAGES: Final = "messages"
GROUPS: Final = "groups"
GROUP: Final = "group"
CLUSTER: Final = "cluster"
HANGING: Final = "hanging"
CUTS: Final = "cuts"

# The parameters that a view needs beside its kind.
_PARAMETERS: Final = {
    TRANSACTIONS: (),
    TRANSACTION: ("id",),
    TOPICS: (),
    TOPIC: ("name",),
    MESSAGES: ("name", "partition"),
    GROUPS: (),
    GROUP: ("name",),
    CLUSTER: (),
    HANGING: (),
    CUTS: (),
}
NAME_CHARACTERS_MAX: Final = 1_000


class View(NamedTuple):
    """A view.

    Attributes:
        name: the TxnID, the topic or the group that it is about; empty: the whole cluster.
        partition: the partition that it is about; -1: none.
    """

    kind: str
    name: str = ""
    partition: int = -1

    @classmethod
    def parse(cls, kind: str, parameters: Mapping[str, str]) -> View:
        """Read a view from the parameters of an address.

        Raises:
            ValueError: there is no such view; the text says what is wrong.
        """
        if kind not in _PARAMETERS:
            raise ValueError("there is no such view")
        needed = _PARAMETERS[kind]
        name = parameters.get("id" if "id" in needed else "name", "") if needed else ""
        if needed and not 0 < len(name) <= NAME_CHARACTERS_MAX:
            raise ValueError("the address does not say what to show")
        if kind == TRANSACTION:
            name = str(TxnID.parse(name))
        partition = -1
        if "partition" in needed:
            text = parameters.get("partition", "")
            if not (text.isascii() and text.isdigit() and len(text) < 10):
                raise ValueError(f"{text[:20]!r} is not the number of a partition")
            partition = int(text)
        return cls(kind, name, partition)
