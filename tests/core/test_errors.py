"""Every error has a name, a code of the protocol, and a gRPC status."""

import grpc
import pytest

from magnetar import errors as client_errors
from magnetar_core import errors
from magnetar_core.error_kinds import ErrorKind, kind_from_wire
from magnetar_core.errors import (
    ERROR_OF_CODE,
    InternalError,
    LogUnavailable,
    MagnetarError,
    QuotaExceeded,
    from_wire,
)
from magnetar_core.wire import common_pb2

ALL = sorted(ERROR_OF_CODE.values(), key=lambda error: error.code)


def test_every_code_of_the_wire_has_one_error() -> None:
    codes = set(common_pb2.ErrorCode.values()) - {common_pb2.ERROR_CODE_UNSPECIFIED}
    assert set(ERROR_OF_CODE) == codes


def test_every_error_has_a_code_of_its_own() -> None:
    named = [
        one
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, MagnetarError) and "code" in vars(one)
    ]
    named.remove(MagnetarError)
    assert len(named) == len({one.code for one in named}) == len(ERROR_OF_CODE)


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_has_one_status_and_says_what_to_do(error: type[MagnetarError]) -> None:
    assert isinstance(getattr(grpc.StatusCode, error.grpc_status), grpc.StatusCode)
    assert "grpc_status" in vars(error)
    assert error.happened.endswith(".")
    assert error.advice.endswith(".")
    assert error.__doc__ == f"{error.happened} {error.advice}"
    assert str(error()) == error.__doc__, "an error without a message says what it means"


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_errors_survive_the_wire(error: type[MagnetarError]) -> None:
    received = from_wire(error("why", offset=7).to_wire())
    assert type(received) is error
    assert str(received) == "why"
    assert received.details == {"offset": "7"}


def test_a_code_of_a_later_version_is_an_internal_error() -> None:
    wire = common_pb2.ServerError(message="new")
    wire.code = 999  # type: ignore[assignment]
    assert type(from_wire(wire)) is InternalError
    assert from_wire(wire).kind is ErrorKind.BUG


@pytest.mark.parametrize("kind", ErrorKind, ids=lambda kind: kind.name)
def test_a_code_of_a_later_version_has_the_kind_that_the_server_names(kind: ErrorKind) -> None:
    wire = common_pb2.ServerError(message="new", kind=kind.to_wire())
    wire.code = 999  # type: ignore[assignment]
    error = from_wire(wire)
    assert error.kind is kind
    assert error.retriable == (kind in (ErrorKind.RETRY, ErrorKind.LOOK_UP))
    assert from_wire(error.to_wire()).kind is kind, "also when it is passed on"
    assert InternalError.kind is ErrorKind.BUG, "others keep theirs"


def test_a_kind_of_a_later_version_is_none() -> None:
    wire = common_pb2.ServerError(message="new")
    wire.code = 999  # type: ignore[assignment]
    wire.kind = 77  # type: ignore[assignment]
    assert from_wire(wire).kind is ErrorKind.BUG


def test_where_the_code_is_known_its_kind_counts() -> None:
    wire = QuotaExceeded("enough").to_wire()
    wire.kind = ErrorKind.RETRY.to_wire()
    assert from_wire(wire).kind is ErrorKind.LIMIT


def test_a_server_of_before_sends_no_kind() -> None:
    wire = LogUnavailable("starting").to_wire()
    wire.ClearField("kind")
    assert from_wire(wire).kind is ErrorKind.RETRY


@pytest.mark.parametrize("error", ALL, ids=lambda error: error.__name__)
def test_every_error_names_its_kind_and_the_wire_carries_it(error: type[MagnetarError]) -> None:
    assert "kind" in vars(error), "a kind is chosen, and not inherited"
    assert kind_from_wire(error().to_wire().kind) is error.kind


def test_the_wire_has_every_kind_and_no_other() -> None:
    names = set(common_pb2.ServerError.Kind.keys()) - {"KIND_UNSPECIFIED"}
    assert names == {kind.name for kind in ErrorKind}


def test_every_kind_has_an_error() -> None:
    assert {error.kind for error in ALL} == set(ErrorKind)


def test_only_what_may_pass_is_asked_again() -> None:
    assert {kind.name for kind in ErrorKind if kind.is_retriable} == {"RETRY", "LOOK_UP"}
    assert {kind.name for kind in ErrorKind if kind.may_pass} == {"RETRY", "LOOK_UP", "ASK_OUTCOME"}


def test_every_error_of_the_sdk_alone_says_the_same() -> None:
    own = [
        one
        for one in vars(client_errors).values()
        if isinstance(one, type)
        and one.__module__ == client_errors.__name__
        and not hasattr(errors, one.__name__)
    ]
    assert len(own) == 8
    for error in own:
        assert {"happened", "advice", "kind"} <= vars(error).keys(), error
        assert error.__doc__
