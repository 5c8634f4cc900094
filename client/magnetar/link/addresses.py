"""Reads the addresses of brokers that an application names, and names servers to people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar_core.config import InvalidConfig, how_to_write, split_address
from magnetar_core.errors import InvalidArgument
from magnetar_core.membership.shard_address import ShardAddress

_SEVERAL = "several as HOST:PORT,HOST:PORT"
_EXAMPLE = f"write HOST:PORT, {_SEVERAL}"


def addresses_of(given: str | Sequence[str], *, of_any_form: bool = False) -> tuple[str, ...]:
    """Return the addresses in a text with commas, or in a list, each once.

    Args:
        given: "host:port", "host:port,host:port", or a list of such texts.
        of_any_form: whether a transport of the application reads the addresses, and not we.
    Raises:
        InvalidArgument: no address is given, or a text is not an address.
    """
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InvalidArgument(f"{given!r} does not name brokers; {_EXAMPLE}")
    found = [one.strip() for text in texts for one in text.split(",") if one.strip()]
    if not found:
        raise InvalidArgument(f"no broker is named; {_EXAMPLE}")
    if not of_any_form:
        for one in found:
            _check(one)
    return tuple(dict.fromkeys(found))


def _check(address: str) -> None:
    try:
        _, port = split_address(address)
    except InvalidConfig:
        port = 0
    if port == 0:
        raise InvalidArgument(
            f"{address[:300]!r} is not the address of a broker; {how_to_write(address)}, {_SEVERAL}"
        )


def shard_of(address: str) -> ShardAddress | None:
    """Return the shard in an address from a server; None: it names a server.

    An address that this version cannot read counts as that of a server, which will not answer.
    """
    try:
        return ShardAddress.parse(address)
    except ValueError:
        return None


def title_of(address: str) -> str:
    """Return how messages for people name the server at an address."""
    found = shard_of(address)
    if found is None:
        return address
    if not found.server:
        return f"shard {found.place.shard}, which no server has at the moment"
    return f"{found.server} (shard {found.place.shard})"
