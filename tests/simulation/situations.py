"""Counts situations that rules are about, in frames that arrive: see short/rules.py."""

from __future__ import annotations

from collections import Counter

from magnetar_core.wire import broker_pb2, common_pb2
from magnetar_core.wire import service_pb2 as pb

# TxnID, topic and partition.
_EndAt = tuple[int, int, str, int]


class Situations:
    """Args:
    provoked: how often each came about, by the letter of its rule and a name.
    """

    def __init__(self, provoked: Counter[str]) -> None:
        self._provoked = provoked
        # Transactions that have ended at a partition, and requests to end them there.
        self._ended: set[_EndAt] = set()
        self._asked: dict[int, list[_EndAt]] = {}

    def watch(self, frame: pb.Frame) -> None:
        for one in frame.commands:
            match one.WhichOneof("body"):
                case "send" if one.send.follows_txn_ids:
                    self._follows(one.send)
                case "end_txn_on_partition":
                    end = one.end_txn_on_partition
                    self._asked[one.request_id] = [_end_at(end.txn_id, end.partition)]
                case "end_txn_on_participants":
                    together = one.end_txn_on_participants
                    self._asked[one.request_id] = [
                        _end_at(together.txn_id, part.partition) for part in together.partitions
                    ]
                case "end_txn_on_partition_response" | "end_txn_on_participants_response":
                    self._ended.update(self._asked.get(one.request_id, ()))
                case "low_watermark":
                    self._provoked["c watermark"] += one.low_watermark.low_watermark > 1
                    self._provoked["f known"] += len(one.low_watermark.known)
                case "low_watermark_response":
                    answer = one.low_watermark_response
                    self._provoked["f orphan"] += len(answer.orphans) + len(answer.held)

    def _follows(self, send: broker_pb2.CommandSend) -> None:
        """Rule k: it arrives before the transaction that it follows has ended."""
        place = (send.partition.topic, send.partition.partition)
        follows = [(two.most_bits, two.least_bits) for two in send.follows_txn_ids]
        if any((*two, *place) not in self._ended for two in follows):
            self._provoked["k next" if send.HasField("txn_id") else "k plain"] += 1


def _end_at(txn_id: common_pb2.TxnId, partition: common_pb2.Partition) -> _EndAt:
    return (txn_id.most_bits, txn_id.least_bits, partition.topic, partition.partition)
