"""Rows of commands, alone and in columns."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.fakes import counted as counted_end
from tests.core.envelope import framed

from magnetar.testing.envelope import command, in_columns, singles
from magnetar_core.errors import InvalidArgument
from magnetar_core.ids import (
    NO_EPOCH,
    MemberName,
    MessageId,
    PartitionName,
    SubscriptionName,
    TxnID,
)
from magnetar_core.server.texts import TEXT_CHARACTERS_MAX, check_texts
from magnetar_core.transport.columns.acks import Ack, Acked
from magnetar_core.transport.columns.column import ROWS_MAX, Answers, Rows
from magnetar_core.transport.columns.end_txns import Ended, EndTxn
from magnetar_core.transport.columns.ends import EndedOnParticipants, EndOnParticipants, participant
from magnetar_core.transport.columns.kinds import ANSWERS, COLUMNS, COLUMNS_OF, as_row
from magnetar_core.transport.columns.new_txns import NewTxn, Opened
from magnetar_core.transport.columns.sends import NOWHERE, Send, Sent
from magnetar_core.transport.frames import COMMANDS_AT_ONCE, FrameWriter, Turns, name_of
from magnetar_core.transport.spliced import PAYLOAD_BYTES_MIN, whole
from magnetar_core.wire import common_pb2, service_pb2
from magnetar_core.wire import transaction_pb2 as pb

U64 = st.integers(0, (1 << 64) - 1)
U32 = st.integers(0, (1 << 32) - 1)
PAIRS = st.lists(st.tuples(U64, U64), max_size=3)
TXN_IDS = st.builds(TxnID, st.integers(1, (1 << 64) - 1), U64)
PARTITIONS = st.builds(PartitionName, st.sampled_from(("t", "ü", "")), U32, U64)
SUBSCRIPTIONS = st.builds(SubscriptionName, st.sampled_from("tu"), U32, U64, st.sampled_from("rs"))
EPOCHS = st.integers(NO_EPOCH, (1 << 31) - 1)
PLACES = st.builds(MessageId, U64, U64, U32, st.just(0))


def counted(name: PartitionName | SubscriptionName, writers: dict[int, int]) -> bytes:
    counts = [pb.WriterCount(writer_id=writer, count=count) for writer, count in writers.items()]
    if isinstance(name, SubscriptionName):
        acked = pb.SubscriptionCounts(subscription=name.to_wire(), consumers=counts)
        return participant("subscriptions", acked.SerializeToString())
    produced = pb.PartitionCounts(partition=name.to_wire(), producers=counts)
    return participant("partitions", produced.SerializeToString())


COUNTED = [
    st.lists(st.builds(counted, names, st.dictionaries(U64, U64, max_size=2)), max_size=2)
    for names in (PARTITIONS, SUBSCRIPTIONS)
]
COUNTED_ENDS = [
    st.lists(
        st.builds(
            lambda name, writers: (name, counted_end(name, *writers.items())),
            names,
            st.dictionaries(U64, U64, max_size=2),
        ),
        max_size=2,
    )
    for names in (PARTITIONS, SUBSCRIPTIONS)
]
IDENTITIES = st.builds(
    common_pb2.ProducerIdentity, transactional_id=st.text(max_size=2), producer_id=st.just(7)
)
# All commits of a message have the highest stamp of them.
STAMP = 9
PLACE = PartitionName("t", 1, 2)
COMMITS = (common_pb2.COMMITTING, common_pb2.COMMITTED)
UNFINISHED = st.builds(
    lambda name, message: pb.UnfinishedParticipant(
        partition=name.to_wire(), error=common_pb2.ServerError(message=message)
    ),
    PARTITIONS,
    st.text(max_size=3),
)
ROWS: dict[type, st.SearchStrategy[Any]] = {
    Send: st.builds(
        Send,
        PARTITIONS,
        U64,
        U64,
        U32,
        st.sampled_from((b"", b"batch", bytes(PAYLOAD_BYTES_MIN))),
        st.none() | TXN_IDS,
        PAIRS,
        EPOCHS,
        st.binary(max_size=2),
    ),
    Sent: st.builds(Sent, st.just(NOWHERE) | PLACES, st.booleans(), st.booleans(), PAIRS),
    Ack: st.builds(
        Ack,
        SUBSCRIPTIONS,
        U64,
        st.integers(0, 1),
        PAIRS,
        st.none() | TXN_IDS,
        U64,
        U64,
        EPOCHS,
        st.none() | st.builds(MemberName, st.sampled_from("mn"), st.text(max_size=2), U32),
        st.booleans(),
        U64,
        st.binary(max_size=2),
        st.lists(PLACES, max_size=2),
    ),
    Acked: st.builds(Acked, U64, st.none() | TXN_IDS),
    EndOnParticipants: st.builds(
        EndOnParticipants,
        st.builds(TxnID, U64, U64),
        st.integers(0, 1),
        st.tuples(*COUNTED).map(lambda two: [*two[0], *two[1]]),
        st.booleans(),
        U64,
        U64,
        st.booleans(),
        st.none() | st.lists(U64, max_size=2),
    ),
    EndedOnParticipants: st.builds(
        EndedOnParticipants, st.builds(TxnID, U64, U64), st.lists(UNFINISHED, max_size=2)
    ),
    NewTxn: st.builds(
        NewTxn,
        U64,
        st.tuples(st.lists(PARTITIONS, max_size=2), st.lists(SUBSCRIPTIONS, max_size=2)).map(
            lambda two: [*two[0], *two[1]]
        ),
        st.none() | IDENTITIES,
        st.none() | st.builds(pb.NamedSequence, name=st.text(max_size=2), sequence=U64),
        U64,
        st.booleans(),
        U64,
        st.booleans(),
        st.none() | TXN_IDS,
        st.lists(U64, max_size=2),
    ),
    EndTxn: st.builds(
        EndTxn,
        st.none() | TXN_IDS,
        st.integers(0, 1),
        st.none() | st.tuples(*COUNTED_ENDS).map(lambda two: [*two[0], *two[1]]),
        st.none() | st.lists(U64, max_size=2),
        st.booleans(),
        st.none() | IDENTITIES,
        st.text(max_size=2),
        U64,
        st.booleans(),
        st.booleans(),
    ),
    Opened: st.builds(Opened, TXN_IDS, U64, st.binary(max_size=2)),
    Ended: st.builds(
        lambda txn_id, status, identity: Ended(
            txn_id, status, STAMP if status in COMMITS else 0, identity
        ),
        st.none() | TXN_IDS,
        st.integers(2, 5),
        st.none() | IDENTITIES,
    ),
}
KINDS = list(COLUMNS.values())
# Of names, and of what few rows have: other columns say which row has which.
TABLES = {
    "partitions",
    "subscriptions",
    "members",
    "participants",
    "counts",
    "identities",
    "named_sequences",
}


def plain(row: Any) -> Any:
    """Sequences compare as lists, whatever they are."""
    return tuple(list(one) if isinstance(one, Sequence) else one for one in row)


def some(kind: type, seed: int = 3) -> list[Any]:
    """As many rows as columns need."""
    random = Random(seed)
    txn_id = TxnID.of(0, 1, random.randrange(9))
    pairs = [(1, 2), (3, 4)]
    made: dict[type, Any] = {
        Send: Send(PartitionName("t", 1, 2), 3, 4, 5, b"b", txn_id, pairs, 0, b"proof"),
        Sent: Sent(MessageId(1, 2, 3), True, True, pairs),
        Ack: Ack(
            SubscriptionName("t", 1, 2, "s"),
            3,
            1,  # type: ignore[arg-type]
            pairs,
            txn_id,
            4,
            5,
            6,
            MemberName("m"),
            True,
            7,
            b"proof",
            [MessageId(1, 2, 3)],
        ),
        Acked: Acked(3, txn_id),
        EndOnParticipants: EndOnParticipants(
            txn_id,
            common_pb2.ABORT,
            [counted(PartitionName("t", 1, 2), {3: 4})],
            True,
            5,
            6,
            True,
            [7, 8],
        ),
        EndedOnParticipants: EndedOnParticipants(
            txn_id, [pb.UnfinishedParticipant(subscription="s")]
        ),
        NewTxn: NewTxn(
            1,
            [PartitionName("t", 1, 2), SubscriptionName("t", 1, 2, "s")],
            common_pb2.ProducerIdentity(transactional_id="i"),
            pb.NamedSequence(name="n"),
            2,
            True,
            3,
            True,
            txn_id,
            [8, 9],
        ),
        EndTxn: EndTxn(
            txn_id,
            common_pb2.ABORT,
            [(PLACE, counted_end(PLACE, (3, 4)))],
            [5, 6],
            True,
            common_pb2.ProducerIdentity(transactional_id="i"),
            "f",
            7,
            True,
            True,
        ),
    }
    return [made[kind]] * COLUMNS_OF[kind].rows_min


@pytest.mark.parametrize("columns", KINDS, ids=lambda one: one.field)
@given(data=st.data())
def test_rows_stay_as_they_are(columns: Any, data: st.DataObject) -> None:
    rows = data.draw(st.lists(ROWS[columns.row], min_size=1, max_size=4))
    request_ids = data.draw(st.lists(U64, min_size=len(rows), max_size=len(rows)))
    packed = columns.message.FromString(
        whole(columns.pack(Rows(request_ids, (), rows))).SerializeToString()
    )
    unpacked = columns.unpack(packed)
    assert list(unpacked.request_ids) == request_ids
    assert list(map(plain, unpacked.rows)) == list(map(plain, rows))
    for row in rows:
        alone = whole(row.to_wire())
        assert type(alone) is columns.single
        assert plain(as_row(columns.single.FromString(alone.SerializeToString()))) == plain(row)
        assert name_of(row) == name_of(alone) == columns.name


@pytest.mark.parametrize("columns", KINDS, ids=lambda one: one.field)
def test_a_column_of_another_length_makes_all_unreadable(columns: Any) -> None:
    rows = some(columns.row)
    ids = list(range(1, len(rows) + 1))
    traceparents = [b"t"] * len(rows)
    packed = whole(columns.pack(Rows(ids, traceparents, rows)))
    for field, values in packed.ListFields():
        for change in ("one more", "one less"):
            if len(values) == 1 and change == "one less" and "counts" not in field.name:
                continue
            damaged = columns.message()
            damaged.CopyFrom(packed)
            column = getattr(damaged, field.name)
            if change == "one less":
                del column[-1]
            elif field.message_type is None:
                column.append(values[-1])
            else:
                column.add().CopyFrom(values[-1])
            # One more of the names is one that no command has.
            if change == "one more" and field.name in TABLES:
                columns.unpack(damaged)
                continue
            with pytest.raises(DecodeError):
                columns.unpack(damaged)


ANSWER_KINDS = list(ANSWERS.values())


@pytest.mark.parametrize("kind", ANSWER_KINDS, ids=lambda one: one.field)
@given(data=st.data())
def test_answers_stay_as_they_are(kind: Any, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    left_out = sorted(data.draw(st.sets(st.integers(0, count - 1))))
    answered = count - len(left_out)
    rows = data.draw(st.lists(ROWS[kind.row], min_size=answered, max_size=answered))
    told = Answers(data.draw(U64), count, left_out, rows)
    read = kind.unpack(kind.message.FromString(kind.pack(told).SerializeToString()))
    assert plain(read) == plain(told)
    assert read.places() == [place for place in range(count) if place not in left_out]
    for row in rows:
        alone = row.to_wire()
        assert type(alone) is kind.single
        assert as_row(kind.single.FromString(alone.SerializeToString())) == row
        assert name_of(row) == name_of(alone) == kind.name


@pytest.mark.parametrize("kind", ANSWER_KINDS, ids=lambda one: one.field)
def test_answers_of_another_number_are_unreadable(kind: Any) -> None:
    txn_id = TxnID.of(0, 1, 2)
    identity = common_pb2.ProducerIdentity(transactional_id="i")
    made: dict[type, Any] = {
        Opened: Opened(txn_id, 3, b"proof"),
        Ended: Ended(txn_id, common_pb2.COMMITTED, STAMP, identity),
    }
    packed = kind.pack(Answers(5, 6, [1, 4], [made[kind.row]] * 4))
    kind.unpack(packed)
    for field, values in packed.ListFields():
        if field.is_repeated and field.name not in TABLES | {"left_out"}:
            damaged = kind.message()
            damaged.CopyFrom(packed)
            del getattr(damaged, field.name)[-1]
            with pytest.raises(DecodeError):
                kind.unpack(damaged)
            getattr(damaged, field.name).extend([values[-1]] * 2)
            with pytest.raises(DecodeError):
                kind.unpack(damaged)
    for count, left_out in (
        (5, [1, 4]),
        (7, [1, 4]),
        (6, [1]),
        (6, [4, 1]),
        (6, [1, 1]),
        (6, [1, 6]),
    ):
        damaged = kind.message()
        damaged.CopyFrom(packed)
        damaged.count = count
        damaged.left_out[:] = left_out
        with pytest.raises(DecodeError):
            kind.unpack(damaged)
    too_many = kind.pack(Answers(5, ROWS_MAX + 1, [], [made[kind.row]] * (ROWS_MAX + 1)))
    with pytest.raises(DecodeError, match="exceed"):
        kind.unpack(too_many)


def test_too_many_rows_and_names_that_are_not_there_are_unreadable() -> None:
    columns = COLUMNS_OF[Send]
    row = some(Send)[0]
    many = columns.pack(Rows(list(range(ROWS_MAX + 1)), (), [row] * (ROWS_MAX + 1)))
    with pytest.raises(DecodeError, match="exceed"):
        columns.unpack(whole(many))
    unnamed: Any = whole(columns.pack(Rows([1], (), [row])))
    unnamed.partition_indexes[0] = 1
    with pytest.raises(DecodeError, match="not in its table"):
        columns.unpack(unnamed)
    ends = COLUMNS_OF[EndOnParticipants]
    damaged: Any = whole(ends.pack(Rows([1], (), some(EndOnParticipants)[:1])))
    for data in (b"", b"\xff", damaged.participants[0] * 2):
        damaged.participants[0] = data
        with pytest.raises(DecodeError):
            ends.unpack(damaged)


def written(*sent: tuple[Any, int]) -> list[service_pb2.Frame]:
    frames: list[bytes] = []
    writer = FrameWriter(frames.append, lambda _: None)
    for body, request_id in sent:
        writer.send(body, request_id, b"t%d" % request_id)
    writer.flush()
    return list(map(service_pb2.Frame.FromString, frames))


def test_few_rows_leave_alone_and_many_in_columns() -> None:
    row, rows_min = some(Send)[0], COLUMNS_OF[Send].rows_min
    (few,) = written(*((row, number) for number in range(1, rows_min)))
    assert [one.WhichOneof("body") for one in few.commands] == ["send"] * (rows_min - 1)
    assert [one.traceparent for one in few.commands] == [b"t%d" % n for n in range(1, rows_min)]
    count = ROWS_MAX + rows_min
    (many,) = written(*((row, number) for number in range(1, count + 1)))
    assert [one.WhichOneof("body") for one in many.commands] == ["sends", "sends"]
    shown = singles(many).commands
    assert [one.request_id for one in shown] == list(range(1, count + 1))
    assert shown[-1].traceparent == b"t%d" % count


def test_kinds_are_gathered_up_to_the_next_message() -> None:
    send, ack = some(Send)[0], some(Ack)[0]
    hello = common_pb2.CommandHello()
    rows_min = max(COLUMNS_OF[kind].rows_min for kind in (Send, Ack))
    mixed = [(one, 2 * n + k) for n in range(rows_min) for k, one in enumerate((send, ack), 1)]
    (frame,) = written(*mixed, (hello, 100), (send, 101))
    assert [one.WhichOneof("body") for one in frame.commands] == ["sends", "acks", "hello", "send"]
    assert list(frame.commands[0].sends.request_ids) == list(range(1, 2 * rows_min, 2))


def test_rows_fill_frames_as_messages_do() -> None:
    large = some(Send)[0]._replace(batch=bytes(400 << 10))
    frames = written(*((large, number) for number in range(1, 9)))
    assert len(frames) > 1
    ids = [one.request_id for frame in frames for one in singles(frame).commands]
    assert ids == list(range(1, 9))


async def parts_of(data: bytes) -> list[int]:
    return [len(singles(part).commands) async for part in Turns().received(data)]


def test_rows_count_in_the_turns_of_the_event_loop() -> None:
    sends = [command(whole(some(Send)[0].to_wire()), number) for number in range(1, 301)]
    parts = asyncio.run(parts_of(in_columns(*sends)))
    assert sum(parts) == 300
    assert max(parts) <= COMMANDS_AT_ONCE
    empty = service_pb2.Command()
    empty.sends.SetInParent()
    assert len(asyncio.run(parts_of(framed(*[empty] * 200)))) > 1


def test_unreadable_columns_end_a_frame_that_is_read_one_by_one() -> None:
    """They have no number to which an error could be told."""
    broken = service_pb2.SealedFrame(commands=[b"\x82\x02\x03\x1a\x01\xff"])
    assert service_pb2.CommandHead.FromString(broken.commands[0]).HasField("sends")
    with pytest.raises(DecodeError):
        asyncio.run(parts_of(broken.SerializeToString()))


@pytest.mark.parametrize(
    "row",
    [
        some(Send)[0]._replace(partition=PartitionName("t" * (TEXT_CHARACTERS_MAX + 1), 0, 0)),
        some(Ack)[0]._replace(member=MemberName("m" * (TEXT_CHARACTERS_MAX + 1))),
        some(Ack)[0]._replace(
            subscription=SubscriptionName("t", 0, 0, "s" * (TEXT_CHARACTERS_MAX + 1))
        ),
        some(EndOnParticipants)[0]._replace(
            participants=[counted(SubscriptionName("t" * (TEXT_CHARACTERS_MAX + 1), 0, 0, "s"), {})]
        ),
        some(NewTxn)[0]._replace(
            participants=[PartitionName("t" * (TEXT_CHARACTERS_MAX + 1), 0, 0)]
        ),
        some(NewTxn)[0]._replace(
            identity=common_pb2.ProducerIdentity(transactional_id="i" * (TEXT_CHARACTERS_MAX + 1))
        ),
        some(NewTxn)[0]._replace(
            named_sequence=pb.NamedSequence(run_token="r" * (TEXT_CHARACTERS_MAX + 1))
        ),
        some(EndTxn)[0]._replace(
            counts=[(PartitionName("t" * (TEXT_CHARACTERS_MAX + 1), 0, 0), b"")]
        ),
        some(EndTxn)[0]._replace(fingerprint="f" * (TEXT_CHARACTERS_MAX + 1)),
        some(EndTxn)[0]._replace(
            identity=common_pb2.ProducerIdentity(transactional_id="i" * (TEXT_CHARACTERS_MAX + 1))
        ),
    ],
    ids=[
        "send",
        "member",
        "subscription",
        "end",
        "participant",
        "identity",
        "run token",
        "counted",
        "fingerprint",
        "identity of an end",
    ],
)
def test_texts_in_rows_are_limited(row: Any) -> None:
    with pytest.raises(InvalidArgument):
        check_texts(row)
    check_texts(some(type(row))[0])
