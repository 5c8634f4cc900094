"""Settings of a link from a server to a broker. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """Settings of a link.

    Attributes:
        client_name: who connects, as the broker's handshake is told.
        cluster_hash: hash of the list of members; empty: not compared.
        answer_deadline_ms: how long connecting, the handshake, and a silent broker may take.
        retry_delay_ms_min: the pause after the first failure; pauses grow from here.
        reconnect_delay_ms_max: the longest pause.
    """

    client_name: str
    cluster_hash: str
    answer_deadline_ms: int
    retry_delay_ms_min: int
    reconnect_delay_ms_max: int
