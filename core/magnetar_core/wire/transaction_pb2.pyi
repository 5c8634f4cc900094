from magnetar_core import requests as _requests
from magnetar_core.wire import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TransactionalState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EMPTY: _ClassVar[TransactionalState]
    ONGOING: _ClassVar[TransactionalState]
    PREPARE_COMMIT: _ClassVar[TransactionalState]
    PREPARE_ABORT: _ClassVar[TransactionalState]
    COMPLETE_COMMIT: _ClassVar[TransactionalState]
    COMPLETE_ABORT: _ClassVar[TransactionalState]

class DetailsMissing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DETAILS_ARE_THERE: _ClassVar[DetailsMissing]
    ENDED_BEFORE_START: _ClassVar[DetailsMissing]
    MANY_ENDED_SINCE: _ClassVar[DetailsMissing]

class EndCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CAUSE_UNKNOWN: _ClassVar[EndCause]
    BY_CLIENT: _ClassVar[EndCause]
    BY_HAND: _ClassVar[EndCause]
    TIMED_OUT: _ClassVar[EndCause]
    TAKEN_OVER: _ClassVar[EndCause]
    MEMBER_EXPELLED: _ClassVar[EndCause]
    RESTORED_FROM_BACKUP: _ClassVar[EndCause]
    DECIDED_BEFORE_LOSS: _ClassVar[EndCause]
EMPTY: TransactionalState
ONGOING: TransactionalState
PREPARE_COMMIT: TransactionalState
PREPARE_ABORT: TransactionalState
COMPLETE_COMMIT: TransactionalState
COMPLETE_ABORT: TransactionalState
DETAILS_ARE_THERE: DetailsMissing
ENDED_BEFORE_START: DetailsMissing
MANY_ENDED_SINCE: DetailsMissing
CAUSE_UNKNOWN: EndCause
BY_CLIENT: EndCause
BY_HAND: EndCause
TIMED_OUT: EndCause
TAKEN_OVER: EndCause
MEMBER_EXPELLED: EndCause
RESTORED_FROM_BACKUP: EndCause
DECIDED_BEFORE_LOSS: EndCause

class CommandInitProducer(_requests.Request[CommandInitProducerResponse]):
    __slots__ = ("transactional_id", "txn_timeout_ms", "enable_2pc", "keep_prepared", "producer_id", "producer_epoch", "call_token", "open_txn_id")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ENABLE_2PC_FIELD_NUMBER: _ClassVar[int]
    KEEP_PREPARED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    txn_timeout_ms: int
    enable_2pc: bool
    keep_prepared: bool
    producer_id: int
    producer_epoch: int
    call_token: int
    open_txn_id: _common_pb2.TxnId
    def __init__(self, transactional_id: _Optional[str] = ..., txn_timeout_ms: _Optional[int] = ..., enable_2pc: _Optional[bool] = ..., keep_prepared: _Optional[bool] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., call_token: _Optional[int] = ..., open_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandInitProducerResponse(_message.Message):
    __slots__ = ("producer_id", "producer_epoch", "ongoing_producer_id", "ongoing_producer_epoch", "ongoing_txn_id")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ONGOING_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    ONGOING_PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    ONGOING_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_epoch: int
    ongoing_producer_id: int
    ongoing_producer_epoch: int
    ongoing_txn_id: _common_pb2.TxnId
    def __init__(self, producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., ongoing_producer_id: _Optional[int] = ..., ongoing_producer_epoch: _Optional[int] = ..., ongoing_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class NamedSequence(_message.Message):
    __slots__ = ("name", "sequence", "run_token", "fingerprint")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RUN_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    name: str
    sequence: int
    run_token: str
    fingerprint: str
    def __init__(self, name: _Optional[str] = ..., sequence: _Optional[int] = ..., run_token: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class CommandNewTxn(_requests.Request[CommandNewTxnResponse]):
    __slots__ = ("txn_timeout_ms", "partitions", "subscriptions", "identity", "named_sequence", "call_token", "answer_before_durable", "seen_stamp", "follows_given", "follows_txn_id", "ledger_ids")
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    NAMED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ANSWER_BEFORE_DURABLE_FIELD_NUMBER: _ClassVar[int]
    SEEN_STAMP_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    txn_timeout_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    identity: _common_pb2.ProducerIdentity
    named_sequence: NamedSequence
    call_token: int
    answer_before_durable: bool
    seen_stamp: int
    follows_given: bool
    follows_txn_id: _common_pb2.TxnId
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, txn_timeout_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ..., identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., named_sequence: _Optional[_Union[NamedSequence, _Mapping]] = ..., call_token: _Optional[int] = ..., answer_before_durable: _Optional[bool] = ..., seen_stamp: _Optional[int] = ..., follows_given: _Optional[bool] = ..., follows_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandNewTxns(_requests.Request[CommandNewTxnsResponse]):
    __slots__ = ("request_ids", "traceparents", "txn_timeouts_ms", "participants", "participant_counts", "participant_indexes", "identities", "identity_numbers", "named_sequences", "named_sequence_numbers", "call_tokens", "answers_before_durable", "seen_stamps", "follows_given", "follows_most_bits", "follows_least_bits", "ledger_id_counts", "ledger_ids")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENTS_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUTS_MS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_INDEXES_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    NAMED_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    NAMED_SEQUENCE_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_BEFORE_DURABLE_FIELD_NUMBER: _ClassVar[int]
    SEEN_STAMPS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_COUNTS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    traceparents: _containers.RepeatedScalarFieldContainer[bytes]
    txn_timeouts_ms: _containers.RepeatedScalarFieldContainer[int]
    participants: _containers.RepeatedScalarFieldContainer[bytes]
    participant_counts: _containers.RepeatedScalarFieldContainer[int]
    participant_indexes: _containers.RepeatedScalarFieldContainer[int]
    identities: _containers.RepeatedCompositeFieldContainer[_common_pb2.ProducerIdentity]
    identity_numbers: _containers.RepeatedScalarFieldContainer[int]
    named_sequences: _containers.RepeatedCompositeFieldContainer[NamedSequence]
    named_sequence_numbers: _containers.RepeatedScalarFieldContainer[int]
    call_tokens: _containers.RepeatedScalarFieldContainer[int]
    answers_before_durable: _containers.RepeatedScalarFieldContainer[bool]
    seen_stamps: _containers.RepeatedScalarFieldContainer[int]
    follows_given: _containers.RepeatedScalarFieldContainer[bool]
    follows_most_bits: _containers.RepeatedScalarFieldContainer[int]
    follows_least_bits: _containers.RepeatedScalarFieldContainer[int]
    ledger_id_counts: _containers.RepeatedScalarFieldContainer[int]
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., traceparents: _Optional[_Iterable[bytes]] = ..., txn_timeouts_ms: _Optional[_Iterable[int]] = ..., participants: _Optional[_Iterable[bytes]] = ..., participant_counts: _Optional[_Iterable[int]] = ..., participant_indexes: _Optional[_Iterable[int]] = ..., identities: _Optional[_Iterable[_Union[_common_pb2.ProducerIdentity, _Mapping]]] = ..., identity_numbers: _Optional[_Iterable[int]] = ..., named_sequences: _Optional[_Iterable[_Union[NamedSequence, _Mapping]]] = ..., named_sequence_numbers: _Optional[_Iterable[int]] = ..., call_tokens: _Optional[_Iterable[int]] = ..., answers_before_durable: _Optional[_Iterable[bool]] = ..., seen_stamps: _Optional[_Iterable[int]] = ..., follows_given: _Optional[_Iterable[bool]] = ..., follows_most_bits: _Optional[_Iterable[int]] = ..., follows_least_bits: _Optional[_Iterable[int]] = ..., ledger_id_counts: _Optional[_Iterable[int]] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandNewTxnsResponse(_message.Message):
    __slots__ = ("first_request_id", "count", "left_out", "txn_most_bits", "txn_least_bits", "txn_timeouts_ms", "txn_proofs")
    FIRST_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUTS_MS_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOFS_FIELD_NUMBER: _ClassVar[int]
    first_request_id: int
    count: int
    left_out: _containers.RepeatedScalarFieldContainer[int]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_timeouts_ms: _containers.RepeatedScalarFieldContainer[int]
    txn_proofs: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, first_request_id: _Optional[int] = ..., count: _Optional[int] = ..., left_out: _Optional[_Iterable[int]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., txn_timeouts_ms: _Optional[_Iterable[int]] = ..., txn_proofs: _Optional[_Iterable[bytes]] = ...) -> None: ...

class CommandNewTxnResponse(_message.Message):
    __slots__ = ("txn_id", "txn_timeout_ms", "txn_proof")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TXN_PROOF_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    txn_timeout_ms: int
    txn_proof: bytes
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_timeout_ms: _Optional[int] = ..., txn_proof: _Optional[bytes] = ...) -> None: ...

class CommandAddPartitionToTxn(_requests.Request[CommandAddPartitionToTxnResponse]):
    __slots__ = ("txn_id", "partitions", "identity", "seen_stamp", "ledger_ids")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SEEN_STAMP_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    identity: _common_pb2.ProducerIdentity
    seen_stamp: int
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., seen_stamp: _Optional[int] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandAddPartitionToTxnResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandAddSubscriptionToTxn(_requests.Request[CommandAddSubscriptionToTxnResponse]):
    __slots__ = ("txn_id", "subscriptions", "identity", "seen_stamp", "ledger_ids")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    SEEN_STAMP_FIELD_NUMBER: _ClassVar[int]
    LEDGER_IDS_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    identity: _common_pb2.ProducerIdentity
    seen_stamp: int
    ledger_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ..., identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., seen_stamp: _Optional[int] = ..., ledger_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandAddSubscriptionToTxnResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class WriterCount(_message.Message):
    __slots__ = ("writer_id", "count")
    WRITER_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    writer_id: int
    count: int
    def __init__(self, writer_id: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PartitionCounts(_message.Message):
    __slots__ = ("partition", "producers", "ledger_id")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    producers: _containers.RepeatedCompositeFieldContainer[WriterCount]
    ledger_id: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., producers: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ..., ledger_id: _Optional[int] = ...) -> None: ...

class SubscriptionCounts(_message.Message):
    __slots__ = ("subscription", "consumers", "ledger_id")
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    subscription: _common_pb2.Subscription
    consumers: _containers.RepeatedCompositeFieldContainer[WriterCount]
    ledger_id: int
    def __init__(self, subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., consumers: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ..., ledger_id: _Optional[int] = ...) -> None: ...

class CommandEndTxn(_requests.Request[CommandEndTxnResponse]):
    __slots__ = ("txn_id", "txn_action", "counts_given", "partition_counts", "subscription_counts", "selection_given", "selected_writer_ids", "wait_finished", "identity", "fingerprint", "seen_stamp", "by_hand", "keep_epoch")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    PARTITION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FINISHED_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    SEEN_STAMP_FIELD_NUMBER: _ClassVar[int]
    BY_HAND_FIELD_NUMBER: _ClassVar[int]
    KEEP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    partition_counts: _containers.RepeatedCompositeFieldContainer[PartitionCounts]
    subscription_counts: _containers.RepeatedCompositeFieldContainer[SubscriptionCounts]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    wait_finished: bool
    identity: _common_pb2.ProducerIdentity
    fingerprint: str
    seen_stamp: int
    by_hand: bool
    keep_epoch: bool
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., partition_counts: _Optional[_Iterable[_Union[PartitionCounts, _Mapping]]] = ..., subscription_counts: _Optional[_Iterable[_Union[SubscriptionCounts, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., wait_finished: _Optional[bool] = ..., identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., fingerprint: _Optional[str] = ..., seen_stamp: _Optional[int] = ..., by_hand: _Optional[bool] = ..., keep_epoch: _Optional[bool] = ...) -> None: ...

class CommandEndTxnResponse(_message.Message):
    __slots__ = ("txn_id", "status", "identity", "stamp")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    status: _common_pb2.TxnStatus
    identity: _common_pb2.ProducerIdentity
    stamp: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., status: _Optional[_Union[_common_pb2.TxnStatus, str]] = ..., identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., stamp: _Optional[int] = ...) -> None: ...

class CommandEndTxns(_requests.Request[CommandEndTxnsResponse]):
    __slots__ = ("request_ids", "traceparents", "txn_most_bits", "txn_least_bits", "txn_actions", "counts_given", "counts", "participant_counts", "participant_indexes", "selections_given", "selection_counts", "selected_writer_ids", "wait_finished", "identities", "identity_numbers", "fingerprints", "seen_stamps", "by_hand", "keep_epoch")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENTS_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_INDEXES_FIELD_NUMBER: _ClassVar[int]
    SELECTIONS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_FINISHED_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    SEEN_STAMPS_FIELD_NUMBER: _ClassVar[int]
    BY_HAND_FIELD_NUMBER: _ClassVar[int]
    KEEP_EPOCH_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    traceparents: _containers.RepeatedScalarFieldContainer[bytes]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_actions: _containers.RepeatedScalarFieldContainer[_common_pb2.TxnAction]
    counts_given: _containers.RepeatedScalarFieldContainer[bool]
    counts: _containers.RepeatedScalarFieldContainer[bytes]
    participant_counts: _containers.RepeatedScalarFieldContainer[int]
    participant_indexes: _containers.RepeatedScalarFieldContainer[int]
    selections_given: _containers.RepeatedScalarFieldContainer[bool]
    selection_counts: _containers.RepeatedScalarFieldContainer[int]
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    wait_finished: _containers.RepeatedScalarFieldContainer[bool]
    identities: _containers.RepeatedCompositeFieldContainer[_common_pb2.ProducerIdentity]
    identity_numbers: _containers.RepeatedScalarFieldContainer[int]
    fingerprints: _containers.RepeatedScalarFieldContainer[str]
    seen_stamps: _containers.RepeatedScalarFieldContainer[int]
    by_hand: _containers.RepeatedScalarFieldContainer[bool]
    keep_epoch: _containers.RepeatedScalarFieldContainer[bool]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., traceparents: _Optional[_Iterable[bytes]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., txn_actions: _Optional[_Iterable[_Union[_common_pb2.TxnAction, str]]] = ..., counts_given: _Optional[_Iterable[bool]] = ..., counts: _Optional[_Iterable[bytes]] = ..., participant_counts: _Optional[_Iterable[int]] = ..., participant_indexes: _Optional[_Iterable[int]] = ..., selections_given: _Optional[_Iterable[bool]] = ..., selection_counts: _Optional[_Iterable[int]] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., wait_finished: _Optional[_Iterable[bool]] = ..., identities: _Optional[_Iterable[_Union[_common_pb2.ProducerIdentity, _Mapping]]] = ..., identity_numbers: _Optional[_Iterable[int]] = ..., fingerprints: _Optional[_Iterable[str]] = ..., seen_stamps: _Optional[_Iterable[int]] = ..., by_hand: _Optional[_Iterable[bool]] = ..., keep_epoch: _Optional[_Iterable[bool]] = ...) -> None: ...

class CommandEndTxnsResponse(_message.Message):
    __slots__ = ("first_request_id", "count", "left_out", "txn_most_bits", "txn_least_bits", "statuses", "stamp", "identities", "identity_numbers")
    FIRST_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    IDENTITIES_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_NUMBERS_FIELD_NUMBER: _ClassVar[int]
    first_request_id: int
    count: int
    left_out: _containers.RepeatedScalarFieldContainer[int]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    statuses: _containers.RepeatedScalarFieldContainer[_common_pb2.TxnStatus]
    stamp: int
    identities: _containers.RepeatedCompositeFieldContainer[_common_pb2.ProducerIdentity]
    identity_numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, first_request_id: _Optional[int] = ..., count: _Optional[int] = ..., left_out: _Optional[_Iterable[int]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., statuses: _Optional[_Iterable[_Union[_common_pb2.TxnStatus, str]]] = ..., stamp: _Optional[int] = ..., identities: _Optional[_Iterable[_Union[_common_pb2.ProducerIdentity, _Mapping]]] = ..., identity_numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandCloseCut(_requests.Request[CommandCloseCutResponse]):
    __slots__ = ("stamp", "wait_ms")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    stamp: int
    wait_ms: int
    def __init__(self, stamp: _Optional[int] = ..., wait_ms: _Optional[int] = ...) -> None: ...

class CommandCloseCutResponse(_message.Message):
    __slots__ = ("tcid", "incarnation", "clock", "unfinished", "truncated")
    TCID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    tcid: int
    incarnation: int
    clock: int
    unfinished: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    truncated: bool
    def __init__(self, tcid: _Optional[int] = ..., incarnation: _Optional[int] = ..., clock: _Optional[int] = ..., unfinished: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class CommandDescribeTransactionalId(_requests.Request[CommandDescribeTransactionalIdResponse]):
    __slots__ = ("transactional_id",)
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    def __init__(self, transactional_id: _Optional[str] = ...) -> None: ...

class CommandDescribeTransactionalIdResponse(_message.Message):
    __slots__ = ("description",)
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    description: TransactionalIdDescription
    def __init__(self, description: _Optional[_Union[TransactionalIdDescription, _Mapping]] = ...) -> None: ...

class CommandListTransactionalIds(_requests.Request[CommandListTransactionalIdsResponse]):
    __slots__ = ("pattern", "limit")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    limit: int
    def __init__(self, pattern: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class CommandListTransactionalIdsResponse(_message.Message):
    __slots__ = ("descriptions", "truncated")
    DESCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    descriptions: _containers.RepeatedCompositeFieldContainer[TransactionalIdDescription]
    truncated: bool
    def __init__(self, descriptions: _Optional[_Iterable[_Union[TransactionalIdDescription, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class TransactionalIdDescription(_message.Message):
    __slots__ = ("transactional_id", "state", "producer_id", "producer_epoch", "prev_producer_id", "next_producer_id", "next_producer_epoch", "txn_timeout_ms", "two_phase_commit", "txn_id")
    TRANSACTIONAL_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    PREV_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    transactional_id: str
    state: TransactionalState
    producer_id: int
    producer_epoch: int
    prev_producer_id: int
    next_producer_id: int
    next_producer_epoch: int
    txn_timeout_ms: int
    two_phase_commit: bool
    txn_id: _common_pb2.TxnId
    def __init__(self, transactional_id: _Optional[str] = ..., state: _Optional[_Union[TransactionalState, str]] = ..., producer_id: _Optional[int] = ..., producer_epoch: _Optional[int] = ..., prev_producer_id: _Optional[int] = ..., next_producer_id: _Optional[int] = ..., next_producer_epoch: _Optional[int] = ..., txn_timeout_ms: _Optional[int] = ..., two_phase_commit: _Optional[bool] = ..., txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandRemoveName(_requests.Request[CommandRemoveNameResponse]):
    __slots__ = ("name", "call_token")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CALL_TOKEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    call_token: int
    def __init__(self, name: _Optional[str] = ..., call_token: _Optional[int] = ...) -> None: ...

class CommandRemoveNameResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommandDescribeName(_requests.Request[CommandDescribeNameResponse]):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class CommandDescribeNameResponse(_message.Message):
    __slots__ = ("has_committed", "committed_sequence", "open", "open_txn_id", "committed_fingerprint")
    HAS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    OPEN_TXN_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    has_committed: bool
    committed_sequence: int
    open: NamedSequence
    open_txn_id: _common_pb2.TxnId
    committed_fingerprint: str
    def __init__(self, has_committed: _Optional[bool] = ..., committed_sequence: _Optional[int] = ..., open: _Optional[_Union[NamedSequence, _Mapping]] = ..., open_txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., committed_fingerprint: _Optional[str] = ...) -> None: ...

class CommandAbortHangingTxn(_requests.Request[CommandAbortHangingTxnResponse]):
    __slots__ = ("txn_id", "partition", "subscription", "start_offset", "producer_epoch")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partition: _common_pb2.Partition
    subscription: str
    start_offset: int
    producer_epoch: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ..., start_offset: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class CommandAbortHangingTxnResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandDescribeTxn(_requests.Request[CommandDescribeTxnResponse]):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandDescribeTxnResponse(_message.Message):
    __slots__ = ("transaction",)
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    transaction: TransactionDescription
    def __init__(self, transaction: _Optional[_Union[TransactionDescription, _Mapping]] = ...) -> None: ...

class CommandListTxns(_requests.Request[CommandListTxnsResponse]):
    __slots__ = ("statuses", "age_ms_min", "limit", "transactional_id_pattern", "producer_ids")
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_MIN_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONAL_ID_PATTERN_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_IDS_FIELD_NUMBER: _ClassVar[int]
    statuses: _containers.RepeatedScalarFieldContainer[_common_pb2.TxnStatus]
    age_ms_min: int
    limit: int
    transactional_id_pattern: str
    producer_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, statuses: _Optional[_Iterable[_Union[_common_pb2.TxnStatus, str]]] = ..., age_ms_min: _Optional[int] = ..., limit: _Optional[int] = ..., transactional_id_pattern: _Optional[str] = ..., producer_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandListTxnsResponse(_message.Message):
    __slots__ = ("transactions", "truncated")
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    truncated: bool
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionDescription, _Mapping]]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class CommandListTxnChanges(_requests.Request[CommandListTxnChangesResponse]):
    __slots__ = ("place", "limit")
    PLACE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    place: TxnChangesPlace
    limit: int
    def __init__(self, place: _Optional[_Union[TxnChangesPlace, _Mapping]] = ..., limit: _Optional[int] = ...) -> None: ...

class TxnChangesPlace(_message.Message):
    __slots__ = ("life", "version", "listed_to")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LISTED_TO_FIELD_NUMBER: _ClassVar[int]
    life: int
    version: int
    listed_to: _common_pb2.TxnId
    def __init__(self, life: _Optional[int] = ..., version: _Optional[int] = ..., listed_to: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandListTxnChangesResponse(_message.Message):
    __slots__ = ("anew", "transactions", "ended", "place", "truncated")
    ANEW_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    anew: bool
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    ended: _containers.RepeatedCompositeFieldContainer[TransactionDescription]
    place: TxnChangesPlace
    truncated: bool
    def __init__(self, anew: _Optional[bool] = ..., transactions: _Optional[_Iterable[_Union[TransactionDescription, _Mapping]]] = ..., ended: _Optional[_Iterable[_Union[TransactionDescription, _Mapping]]] = ..., place: _Optional[_Union[TxnChangesPlace, _Mapping]] = ..., truncated: _Optional[bool] = ...) -> None: ...

class CommandAcceptTxnLoss(_requests.Request[CommandAcceptTxnLossResponse]):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandAcceptTxnLossResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class TransactionDescription(_message.Message):
    __slots__ = ("txn_id", "status", "txn_timeout_ms", "age_ms", "opened_at_ms", "partitions", "subscriptions", "unfinished", "identity", "two_phase_commit", "named_sequence", "ended_at_ms", "principal", "stamp", "client", "details_missing", "decided_at_ms", "cause", "caused_by", "ended", "confirmed", "trace_id")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    TXN_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    OPENED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    TWO_PHASE_COMMIT_FIELD_NUMBER: _ClassVar[int]
    NAMED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    DETAILS_MISSING_FIELD_NUMBER: _ClassVar[int]
    DECIDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    CAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    CONFIRMED_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    status: _common_pb2.TxnStatus
    txn_timeout_ms: int
    age_ms: int
    opened_at_ms: int
    partitions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Partition]
    subscriptions: _containers.RepeatedCompositeFieldContainer[_common_pb2.Subscription]
    unfinished: _containers.RepeatedCompositeFieldContainer[UnfinishedParticipant]
    identity: _common_pb2.ProducerIdentity
    two_phase_commit: bool
    named_sequence: NamedSequence
    ended_at_ms: int
    principal: str
    stamp: int
    client: TransactionClient
    details_missing: DetailsMissing
    decided_at_ms: int
    cause: EndCause
    caused_by: str
    ended: _containers.RepeatedCompositeFieldContainer[EndedParticipant]
    confirmed: _containers.RepeatedCompositeFieldContainer[ConfirmedWrites]
    trace_id: str
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., status: _Optional[_Union[_common_pb2.TxnStatus, str]] = ..., txn_timeout_ms: _Optional[int] = ..., age_ms: _Optional[int] = ..., opened_at_ms: _Optional[int] = ..., partitions: _Optional[_Iterable[_Union[_common_pb2.Partition, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[_common_pb2.Subscription, _Mapping]]] = ..., unfinished: _Optional[_Iterable[_Union[UnfinishedParticipant, _Mapping]]] = ..., identity: _Optional[_Union[_common_pb2.ProducerIdentity, _Mapping]] = ..., two_phase_commit: _Optional[bool] = ..., named_sequence: _Optional[_Union[NamedSequence, _Mapping]] = ..., ended_at_ms: _Optional[int] = ..., principal: _Optional[str] = ..., stamp: _Optional[int] = ..., client: _Optional[_Union[TransactionClient, _Mapping]] = ..., details_missing: _Optional[_Union[DetailsMissing, str]] = ..., decided_at_ms: _Optional[int] = ..., cause: _Optional[_Union[EndCause, str]] = ..., caused_by: _Optional[str] = ..., ended: _Optional[_Iterable[_Union[EndedParticipant, _Mapping]]] = ..., confirmed: _Optional[_Iterable[_Union[ConfirmedWrites, _Mapping]]] = ..., trace_id: _Optional[str] = ...) -> None: ...

class EndedParticipant(_message.Message):
    __slots__ = ("partition", "subscription", "ended_at_ms")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    subscription: str
    ended_at_ms: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ..., ended_at_ms: _Optional[int] = ...) -> None: ...

class ConfirmedWrites(_message.Message):
    __slots__ = ("partition", "subscription", "count")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    subscription: str
    count: int
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class TransactionClient(_message.Message):
    __slots__ = ("name", "host", "connected")
    NAME_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    host: str
    connected: bool
    def __init__(self, name: _Optional[str] = ..., host: _Optional[str] = ..., connected: _Optional[bool] = ...) -> None: ...

class UnfinishedParticipant(_message.Message):
    __slots__ = ("partition", "subscription", "error")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    partition: _common_pb2.Partition
    subscription: str
    error: _common_pb2.ServerError
    def __init__(self, partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ..., error: _Optional[_Union[_common_pb2.ServerError, _Mapping]] = ...) -> None: ...

class CommandEndTxnOnPartition(_requests.Request[CommandEndTxnOnPartitionResponse]):
    __slots__ = ("txn_id", "partition", "txn_action", "counts_given", "counts", "selection_given", "selected_writer_ids", "loss_accepted", "hanging", "stamp", "incarnation", "ledger_id")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    HANGING_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partition: _common_pb2.Partition
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    counts: _containers.RepeatedCompositeFieldContainer[WriterCount]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: bool
    hanging: HangingTxn
    stamp: int
    incarnation: int
    ledger_id: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., counts: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[bool] = ..., hanging: _Optional[_Union[HangingTxn, _Mapping]] = ..., stamp: _Optional[int] = ..., incarnation: _Optional[int] = ..., ledger_id: _Optional[int] = ...) -> None: ...

class HangingTxn(_message.Message):
    __slots__ = ("start_offset", "producer_epoch")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    producer_epoch: int
    def __init__(self, start_offset: _Optional[int] = ..., producer_epoch: _Optional[int] = ...) -> None: ...

class CommandEndTxnOnPartitionResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandEndTxnOnSubscription(_requests.Request[CommandEndTxnOnSubscriptionResponse]):
    __slots__ = ("txn_id", "subscription", "txn_action", "counts_given", "counts", "selection_given", "selected_writer_ids", "loss_accepted", "hanging", "stamp", "incarnation", "ledger_id")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    HANGING_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEDGER_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    subscription: _common_pb2.Subscription
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    counts: _containers.RepeatedCompositeFieldContainer[WriterCount]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: bool
    hanging: HangingTxn
    stamp: int
    incarnation: int
    ledger_id: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., subscription: _Optional[_Union[_common_pb2.Subscription, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., counts: _Optional[_Iterable[_Union[WriterCount, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[bool] = ..., hanging: _Optional[_Union[HangingTxn, _Mapping]] = ..., stamp: _Optional[int] = ..., incarnation: _Optional[int] = ..., ledger_id: _Optional[int] = ...) -> None: ...

class CommandEndTxnOnSubscriptionResponse(_message.Message):
    __slots__ = ("txn_id",)
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ...) -> None: ...

class CommandEndTxnOnParticipants(_requests.Request[CommandEndTxnOnParticipantsResponse]):
    __slots__ = ("txn_id", "txn_action", "counts_given", "partitions", "subscriptions", "selection_given", "selected_writer_ids", "loss_accepted", "stamp", "incarnation")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    txn_action: _common_pb2.TxnAction
    counts_given: bool
    partitions: _containers.RepeatedCompositeFieldContainer[PartitionCounts]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionCounts]
    selection_given: bool
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: bool
    stamp: int
    incarnation: int
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., counts_given: _Optional[bool] = ..., partitions: _Optional[_Iterable[_Union[PartitionCounts, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionCounts, _Mapping]]] = ..., selection_given: _Optional[bool] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[bool] = ..., stamp: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CommandEndTxnOnParticipantsResponse(_message.Message):
    __slots__ = ("txn_id", "unfinished")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    unfinished: _containers.RepeatedCompositeFieldContainer[UnfinishedParticipant]
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., unfinished: _Optional[_Iterable[_Union[UnfinishedParticipant, _Mapping]]] = ...) -> None: ...

class CommandEndTxnsOnParticipants(_requests.Request[CommandEndTxnsOnParticipantsResponse]):
    __slots__ = ("request_ids", "traceparents", "txn_most_bits", "txn_least_bits", "txn_actions", "participants", "participant_counts", "participant_indexes", "counts_given", "stamps", "incarnations", "loss_accepted", "selections_given", "selection_counts", "selected_writer_ids")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TRACEPARENTS_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_ACTIONS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_COUNTS_FIELD_NUMBER: _ClassVar[int]
    PARTICIPANT_INDEXES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    STAMPS_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    LOSS_ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    SELECTIONS_GIVEN_FIELD_NUMBER: _ClassVar[int]
    SELECTION_COUNTS_FIELD_NUMBER: _ClassVar[int]
    SELECTED_WRITER_IDS_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    traceparents: _containers.RepeatedScalarFieldContainer[bytes]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_actions: _containers.RepeatedScalarFieldContainer[_common_pb2.TxnAction]
    participants: _containers.RepeatedScalarFieldContainer[bytes]
    participant_counts: _containers.RepeatedScalarFieldContainer[int]
    participant_indexes: _containers.RepeatedScalarFieldContainer[int]
    counts_given: _containers.RepeatedScalarFieldContainer[bool]
    stamps: _containers.RepeatedScalarFieldContainer[int]
    incarnations: _containers.RepeatedScalarFieldContainer[int]
    loss_accepted: _containers.RepeatedScalarFieldContainer[bool]
    selections_given: _containers.RepeatedScalarFieldContainer[bool]
    selection_counts: _containers.RepeatedScalarFieldContainer[int]
    selected_writer_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., traceparents: _Optional[_Iterable[bytes]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., txn_actions: _Optional[_Iterable[_Union[_common_pb2.TxnAction, str]]] = ..., participants: _Optional[_Iterable[bytes]] = ..., participant_counts: _Optional[_Iterable[int]] = ..., participant_indexes: _Optional[_Iterable[int]] = ..., counts_given: _Optional[_Iterable[bool]] = ..., stamps: _Optional[_Iterable[int]] = ..., incarnations: _Optional[_Iterable[int]] = ..., loss_accepted: _Optional[_Iterable[bool]] = ..., selections_given: _Optional[_Iterable[bool]] = ..., selection_counts: _Optional[_Iterable[int]] = ..., selected_writer_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CommandEndTxnsOnParticipantsResponse(_message.Message):
    __slots__ = ("request_ids", "txn_most_bits", "txn_least_bits", "unfinished_counts", "unfinished")
    REQUEST_IDS_FIELD_NUMBER: _ClassVar[int]
    TXN_MOST_BITS_FIELD_NUMBER: _ClassVar[int]
    TXN_LEAST_BITS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_COUNTS_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    request_ids: _containers.RepeatedScalarFieldContainer[int]
    txn_most_bits: _containers.RepeatedScalarFieldContainer[int]
    txn_least_bits: _containers.RepeatedScalarFieldContainer[int]
    unfinished_counts: _containers.RepeatedScalarFieldContainer[int]
    unfinished: _containers.RepeatedCompositeFieldContainer[UnfinishedParticipant]
    def __init__(self, request_ids: _Optional[_Iterable[int]] = ..., txn_most_bits: _Optional[_Iterable[int]] = ..., txn_least_bits: _Optional[_Iterable[int]] = ..., unfinished_counts: _Optional[_Iterable[int]] = ..., unfinished: _Optional[_Iterable[_Union[UnfinishedParticipant, _Mapping]]] = ...) -> None: ...

class TxnRange(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class CommandLowWatermark(_requests.Request[CommandLowWatermarkResponse]):
    __slots__ = ("tcid", "incarnation", "low_watermark", "live", "counter_bound", "known", "next_counter", "store_token")
    TCID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LOW_WATERMARK_FIELD_NUMBER: _ClassVar[int]
    LIVE_FIELD_NUMBER: _ClassVar[int]
    COUNTER_BOUND_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    NEXT_COUNTER_FIELD_NUMBER: _ClassVar[int]
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tcid: int
    incarnation: int
    low_watermark: int
    live: _containers.RepeatedCompositeFieldContainer[TxnRange]
    counter_bound: int
    known: _containers.RepeatedCompositeFieldContainer[OrphanedParticipant]
    next_counter: int
    store_token: str
    def __init__(self, tcid: _Optional[int] = ..., incarnation: _Optional[int] = ..., low_watermark: _Optional[int] = ..., live: _Optional[_Iterable[_Union[TxnRange, _Mapping]]] = ..., counter_bound: _Optional[int] = ..., known: _Optional[_Iterable[_Union[OrphanedParticipant, _Mapping]]] = ..., next_counter: _Optional[int] = ..., store_token: _Optional[str] = ...) -> None: ...

class CommandDescribeEnds(_requests.Request[CommandDescribeEndsResponse]):
    __slots__ = ("txn_ids", "tcid", "incarnation", "store_token")
    TXN_IDS_FIELD_NUMBER: _ClassVar[int]
    TCID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STORE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    txn_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    tcid: int
    incarnation: int
    store_token: str
    def __init__(self, txn_ids: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ..., tcid: _Optional[int] = ..., incarnation: _Optional[int] = ..., store_token: _Optional[str] = ...) -> None: ...

class CommandDescribeEndsResponse(_message.Message):
    __slots__ = ("ends", "forgotten")
    class DescribedEnd(_message.Message):
        __slots__ = ("txn_id", "txn_action", "selection_digest", "stamp")
        TXN_ID_FIELD_NUMBER: _ClassVar[int]
        TXN_ACTION_FIELD_NUMBER: _ClassVar[int]
        SELECTION_DIGEST_FIELD_NUMBER: _ClassVar[int]
        STAMP_FIELD_NUMBER: _ClassVar[int]
        txn_id: _common_pb2.TxnId
        txn_action: _common_pb2.TxnAction
        selection_digest: bytes
        stamp: int
        def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., txn_action: _Optional[_Union[_common_pb2.TxnAction, str]] = ..., selection_digest: _Optional[bytes] = ..., stamp: _Optional[int] = ...) -> None: ...
    ENDS_FIELD_NUMBER: _ClassVar[int]
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedCompositeFieldContainer[CommandDescribeEndsResponse.DescribedEnd]
    forgotten: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    def __init__(self, ends: _Optional[_Iterable[_Union[CommandDescribeEndsResponse.DescribedEnd, _Mapping]]] = ..., forgotten: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ...) -> None: ...

class CommandTxnsIssued(_message.Message):
    __slots__ = ("tcid", "incarnation", "next_counter")
    TCID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NEXT_COUNTER_FIELD_NUMBER: _ClassVar[int]
    tcid: int
    incarnation: int
    next_counter: int
    def __init__(self, tcid: _Optional[int] = ..., incarnation: _Optional[int] = ..., next_counter: _Optional[int] = ...) -> None: ...

class CommandLowWatermarkResponse(_message.Message):
    __slots__ = ("orphans", "held")
    ORPHANS_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    orphans: _containers.RepeatedCompositeFieldContainer[OrphanedParticipant]
    held: _containers.RepeatedCompositeFieldContainer[OrphanedParticipant]
    def __init__(self, orphans: _Optional[_Iterable[_Union[OrphanedParticipant, _Mapping]]] = ..., held: _Optional[_Iterable[_Union[OrphanedParticipant, _Mapping]]] = ...) -> None: ...

class CommandAbortExpelled(_message.Message):
    __slots__ = ("txn_ids",)
    TXN_IDS_FIELD_NUMBER: _ClassVar[int]
    txn_ids: _containers.RepeatedCompositeFieldContainer[_common_pb2.TxnId]
    def __init__(self, txn_ids: _Optional[_Iterable[_Union[_common_pb2.TxnId, _Mapping]]] = ...) -> None: ...

class OrphanedParticipant(_message.Message):
    __slots__ = ("txn_id", "partition", "subscription")
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    txn_id: _common_pb2.TxnId
    partition: _common_pb2.Partition
    subscription: str
    def __init__(self, txn_id: _Optional[_Union[_common_pb2.TxnId, _Mapping]] = ..., partition: _Optional[_Union[_common_pb2.Partition, _Mapping]] = ..., subscription: _Optional[str] = ...) -> None: ...
