"""One name each, mapped once to the wire and to a gRPC status."""

import grpc
import pytest

from magnetar_core import errors
from magnetar_core.errors import ERROR_OF_CODE, InternalError, MagnetarError, from_wire
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
    assert error.__doc__


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
