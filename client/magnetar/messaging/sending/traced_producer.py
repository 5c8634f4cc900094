"""A producer of a client that makes traces: its messages name the span that sent them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from magnetar.link.traces import ClientTraces
from magnetar.messaging.sending.producer import Producer
from magnetar.messaging.sending.producer_work import ProducerWork

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _carrying(send: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a method of Producer that adds the current span to the properties of its message."""

    @wraps(send)
    def carrying(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        producer: Any = args[0]
        kwargs["properties"] = producer.traces.carried(kwargs.get("properties"))
        return send(*args, **kwargs)

    return carrying


class TracedProducer(Producer):
    """A Producer whose messages have the property `traceparent`, unless they have it already.

    The messages of send_many() and send_columns() do not have it: they have no properties.
    """

    def __init__(self, work: ProducerWork, traces: ClientTraces) -> None:
        super().__init__(work)
        self.traces = traces

    send = _carrying(Producer.send)
    send_nowait = _carrying(Producer.send_nowait)
    enqueue = _carrying(Producer.enqueue)
