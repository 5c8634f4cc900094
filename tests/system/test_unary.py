"""Single calls as a person makes them, knowing nothing but what the servers tell by reflection."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_status import rpc_status
from tests.core.calls import failed_call, serving_status
from tests.system.processes import BOTH, BROKER, COORDINATOR, Servers

SERVICES = {BROKER: "magnetar.v1.Broker", COORDINATOR: "magnetar.v1.TransactionCoordinator"}
TIMEOUT_S = 5.0


class Caller:
    """Calls a service with dictionaries, as grpcurl does with JSON."""

    def __init__(self, address: str, service: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self._service = service
        self._pool = descriptor_pool.DescriptorPool()
        self._stub = reflection_pb2_grpc.ServerReflectionStub(self.channel)
        self._files: set[str] = set()
        self._add_files(reflection_pb2.ServerReflectionRequest(file_containing_symbol=service))

    def services(self) -> set[str]:
        answer = self._ask(reflection_pb2.ServerReflectionRequest(list_services=""))
        return {one.name for one in answer.list_services_response.service}

    def __call__(self, method: str, **fields: Any) -> dict[str, Any]:
        """Raises: grpc.RpcError."""
        described = self._pool.FindServiceByName(self._service).FindMethodByName(method)
        ask: grpc.UnaryUnaryMultiCallable[Message, Message] = self.channel.unary_unary(
            f"/{self._service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=GetMessageClass(described.output_type).FromString,
        )
        request = ParseDict(fields, GetMessageClass(described.input_type)())
        answer: dict[str, Any] = MessageToDict(
            ask(request, timeout=TIMEOUT_S), preserving_proto_field_name=True
        )
        return answer

    def refused(self, method: str, **fields: Any) -> tuple[grpc.StatusCode, str]:
        """Returns the status and the typed error's code, for a call that is to be refused."""
        with pytest.raises(grpc.RpcError) as caught:
            self(method, **fields)
        failed = failed_call(caught.value)
        status = rpc_status.from_call(failed)
        assert status is not None
        (detail,) = status.details
        server_error = GetMessageClass(
            self._pool.FindMessageTypeByName("magnetar.v1.ServerError")
        )()
        assert detail.Unpack(server_error)
        fields = MessageToDict(server_error)
        assert fields["message"] == failed.details()
        code: str = fields["code"]
        return failed.code(), code

    def health(self) -> int:
        (answer,) = {serving_status(self.channel, service) for service in ("", self._service)}
        return answer

    def _ask(self, request: Any) -> Any:
        ask: Any = self._stub.ServerReflectionInfo  # The stubs say nothing of how it is called.
        return next(ask(iter([request]), timeout=TIMEOUT_S))

    def _add_files(self, request: Any) -> None:
        for text in self._ask(request).file_descriptor_response.file_descriptor_proto:
            file = descriptor_pb2.FileDescriptorProto.FromString(text)
            if file.name in self._files:
                continue
            self._files.add(file.name)
            for dependency in file.dependency:
                self._add_files(reflection_pb2.ServerReflectionRequest(file_by_filename=dependency))
            self._pool.Add(file)


@dataclass
class Callers:
    broker: Caller
    coordinator: Caller


@pytest.fixture
def callers(servers: Servers) -> Iterator[Callers]:
    both = [Caller(servers.addresses[kind], SERVICES[kind]) for kind in BOTH]
    yield Callers(*both)
    for one in both:
        one.channel.close()


# By hand, at one server each; with shards that move a person would ask for their owners again.
@pytest.mark.keeps_shards
def test_a_person_makes_a_transaction_by_hand(callers: Callers) -> None:
    broker, coordinator = callers.broker, callers.coordinator
    for caller, service in ((broker, SERVICES[BROKER]), (coordinator, SERVICES[COORDINATOR])):
        assert service in caller.services()
        assert caller.health() == health_pb2.HealthCheckResponse.SERVING

    partition = {"topic": "letters", "partition": 1}
    message = {"key": "YQ==", "value": "aGVsbG8="}
    broker("CreateTopic", topic="letters", partitions=2)
    txn_id = coordinator("NewTxn", txn_timeout_ms=60_000)["txn_id"]
    coordinator("AddPartitionToTxn", txn_id=txn_id, partitions=[partition])
    broker("Publish", partition=partition, messages=[message], txn_id=txn_id)
    assert "messages" not in broker("Peek", partition=partition)
    described = coordinator("DescribeTxn", txn_id=txn_id)["transaction"]
    assert described["status"] == "OPEN"
    for _ in range(2):
        answer = coordinator("EndTxn", txn_id=txn_id, txn_action="COMMIT", wait_finished=True)
        assert answer["status"] == "COMMITTED"
    (peeked,) = broker("Peek", partition=partition)["messages"]
    assert (peeked["key"], peeked["value"]) == (message["key"], message["value"])

    # Mistakes.
    invalid_state = (grpc.StatusCode.FAILED_PRECONDITION, "INVALID_TXN_STATE")
    assert coordinator.refused("EndTxn", txn_id=txn_id, txn_action="ABORT") == invalid_state
    assert (
        broker.refused("Publish", partition=partition, messages=[message], txn_id=txn_id)
        == invalid_state
    )
    assert broker.refused("CreateTopic", topic="letters") == (
        grpc.StatusCode.ALREADY_EXISTS,
        "TOPIC_EXISTS",
    )
    assert broker.refused("Peek", partition={"topic": "unknown"}) == (
        grpc.StatusCode.NOT_FOUND,
        "TOPIC_NOT_FOUND",
    )
    unknown = {"most_bits": txn_id.get("most_bits", "0"), "least_bits": "999999"}
    assert coordinator.refused("DescribeTxn", txn_id=unknown) == (
        grpc.StatusCode.NOT_FOUND,
        "TXN_NOT_FOUND",
    )
    assert broker.refused("CreateTopic", topic="")[1] == "INVALID_ARGUMENT"
