"""Base of all blocking classes: an asyncio object, and the thread on which it lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar, overload

from magnetar.blocking.loop_thread import LoopThread
from magnetar.blocking.workers import in_thread
from magnetar.groups import settings
from magnetar.habits import KnowsHabits
from magnetar.topic_partition import TopicPartition
from magnetar.transactions.transaction_block import NotGiven
from magnetar_core.errors import InvalidArgument

Inner = TypeVar("Inner", covariant=True)
T = TypeVar("T")
P = ParamSpec("P")

OnPartitions = Callable[[list[TopicPartition]], object]


class Facade(KnowsHabits, Generic[Inner]):
    """Has the asyncio object's work done on the client's thread, and waits for it.

    Attributes:
        inner: the asyncio object: for code that runs on that thread.
    """

    def __init__(self, loop: LoopThread, inner: Inner) -> None:
        self._loop = loop
        self.inner = inner

    @property
    def loop(self) -> LoopThread:
        """The client's thread, for what is built on top of this object."""
        return self._loop

    def __repr__(self) -> str:
        return f"<blocking {self.inner!r}>"


def inner_of(facade: Facade[T]) -> T:
    """Return the asyncio object.

    Raises:
        InvalidArgument: it is not an object of magnetar.blocking.
    """
    if not isinstance(facade, Facade):
        raise InvalidArgument(
            f"give the object of magnetar.blocking, and not a {type(facade).__qualname__}"
        )
    return facade.inner


def inner_or_other(given: Facade[T]) -> T:
    """Return the asyncio object of a facade, and anything else as it is.

    The asyncio call then refuses a wrong object itself, so that its transaction fails.
    """
    return given.inner if isinstance(given, Facade) else given


@overload
def inner_if_given(facade: Facade[T] | None) -> T | None: ...


@overload
def inner_if_given(facade: Facade[T] | NotGiven | None) -> T | NotGiven | None: ...


def inner_if_given(facade: Facade[T] | NotGiven | None) -> T | NotGiven | None:
    """Return the asyncio object, if there is one; as inner_of."""
    return facade if facade is None or isinstance(facade, NotGiven) else inner_of(facade)


def on_a_thread(callback: OnPartitions | None) -> settings.OnPartitions | None:
    """Have a callback called on a thread of its own, and waited for.

    It may use the blocking client, which waits for the client's thread: it must not be there.
    """
    if not callable(callback):
        # None, or what the asyncio object refuses.
        return callback

    async def call(places: list[TopicPartition]) -> None:
        await in_thread(callback, places)

    return call


class Calls:
    """Calls that the client's thread makes while we wait for it, made here when it is done."""

    def __init__(self) -> None:
        self._calls: list[Callable[[], object]] = []

    def here(self, callback: Callable[P, None] | None) -> Callable[P, None] | None:
        """Return the function to give instead of a callback."""
        if callback is None:
            return None

        def call(*args: P.args, **kwargs: P.kwargs) -> None:
            self._calls.append(partial(callback, *args, **kwargs))

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for call in self._calls:
            call()
