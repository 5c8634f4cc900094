"""Transactions of a shop, for the views: a committed one, one that may be prepared, an open one."""

from __future__ import annotations

from magnetar import blocking


class Shop:
    """A shop, whose scenes have servers and a client.

    Attributes:
        committed: the TxnID of the transaction that is committed.
        prepared_state: the state that names the transaction that may be prepared.
        open: the open transaction. It has acknowledged the first order.
    """

    client: blocking.Client

    def make_topics(self) -> None:
        for topic in ("orders", "invoices", "kept.in.a.database"):
            self.client.admin.topics.create(topic, partitions=2)

    def trade(self, *, open_partition: int) -> None:
        """Begin the transactions; an order has been sent.

        Args:
            open_partition: of invoices, where the open transaction writes.
        """
        client = self.client
        with client.transaction() as committed:
            committed.send("invoices", b"seen by all", partition=0)
        self.committed = str(committed.txn_id)
        prepared = client.transactional_producer("shop-1", two_phase_commit=True)
        prepared.init()
        prepared.begin()
        prepared.send("kept.in.a.database", b"a row", partition=0)
        self.prepared_state = str(prepared.prepare())
        self.consumer = client.subscribe("orders", "bill", initial_position="earliest")
        self.open = client.begin_transaction(timeout_s=600)
        self.open.send("invoices", b"not seen yet", partition=open_partition)
        self.open.ack(self.consumer.receive())
        self.group = client.consumer_group("billing", "orders", initial_position="earliest")
