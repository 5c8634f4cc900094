"""Relation between commands and their answers, for the type checker and at run time.

An `rpc` in service.proto names the answer of a command. The answer of the few commands that only
the stream carries has the same name, followed by `Response`.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from google.protobuf.message import Message

from magnetar_core.wire import service_pb2 as pb

ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class Request(Message, Generic[ResponseT_co]):
    """A command that is answered with a ResponseT_co.

    Only the stubs of the generated messages derive from it (tools/generate_protobuf.py), so that
    `request(CommandLookup(...))` has the type CommandLookupResponse. At run time a message has no
    such base class: RESPONSE_FIELDS holds the same facts.
    """


def _response_fields() -> dict[type[Message], str]:
    """Return the name of the answer's field in the envelope, by the class of the command."""
    envelope = pb.Command()
    bodies = {
        field.name: type(getattr(envelope, field.name))
        for field in pb.Command.DESCRIPTOR.oneofs_by_name["body"].fields
    }
    field_of = {body.DESCRIPTOR.name: field for field, body in bodies.items()}
    response_of = {
        name: f"{name}Response" for name in field_of if f"{name}Response" in field_of
    } | {
        method.input_type.name: method.output_type.name
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.input_type.name in field_of
    }
    return {
        body: field_of[response_of[body.DESCRIPTOR.name]]
        for body in bodies.values()
        if body.DESCRIPTOR.name in response_of
    }


# The name of an answer's field in the envelope. Keys are classes of commands.
RESPONSE_FIELDS = _response_fields()
