"""Checks stores one after the other, the coordinators first, and then against each other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from google.protobuf.message import DecodeError

from magnetar_broker.offline.check import check_broker
from magnetar_cli.check.decisions import Decisions
from magnetar_coordinator.offline.check import OfflineCoordinator, check_coordinator
from magnetar_core.config import InvalidConfig
from magnetar_core.ids import TxnID
from magnetar_core.wire import common_pb2 as common
from magnetar_core.wire.record_pb2 import StoreIdentity
from magnetar_storage import store_identity
from magnetar_storage.object_store.url import ObjectStoreUrl
from magnetar_storage.offline.findings import Finding, Findings
from magnetar_storage.offline.read_only import ReadOnlyStore, open_read_only
from magnetar_storage.store import RowsUnreadable, StoreDamaged, StoreFailed

if TYPE_CHECKING:
    from magnetar_cli.stored_marks import StoredMarks

# Both servers keep the store's identity in this family.
_META = "meta"

# Takes a store, and the number of rows of it that were read.
Progress = Callable[[str, int], object]


# Comparison of stores in an object store with their durable marks: whether their ends are there.
# A directory has its own mark, which is compared when it is opened.

_CHECK = "durable"


class Ends:
    """Compares the ends of stores with their marks.

    Args:
        etcd: addresses of the etcd of the stores' cluster; None: they were not given.
        cluster_id: the cluster, of several in one etcd.
    """

    def __init__(self, etcd: str | None, cluster_id: str) -> None:
        self._etcd = etcd
        self._cluster_id = cluster_id
        self._marks: StoredMarks | None = None

    async def compare(self, place: str, findings: Findings) -> None:
        """Note changes that are missing from the end of a store.

        Raises:
            InvalidConfig: it is not the address of a server's store, or etcd is another one.
            StoreDamaged: the manifest is missing or damaged, or an object of the log.
            StoreFailed: the store cannot be read.
        """
        if "://" not in place:
            return
        # Packages that a check of directories does not need.
        from magnetar_cli.stored_marks import EtcdUnknown, StoredMarks
        from magnetar_storage.object_store.check import generation_at
        from magnetar_storage.slatedb.end import end_of_store, missing_from_store
        from magnetar_storage.slatedb.engine import ENGINE

        url = ObjectStoreUrl.parse(place)
        self._marks = self._marks or StoredMarks(self._etcd, self._cluster_id)
        generation = await generation_at(url, engine=ENGINE)
        if generation is None:
            findings.damage(_CHECK, place, "the stamp of the store is missing")
            return
        try:
            mark_place = await self._marks.place_of(url)
        except EtcdUnknown as error:
            await end_of_store(url)
            findings.note(_CHECK, place, str(error))
            return
        missing = await missing_from_store(url, mark_place, generation)
        if missing is not None:
            findings.damage(_CHECK, place, missing)

    async def aclose(self) -> None:
        """Close the connection to etcd."""
        if self._marks is not None:
            await self._marks.close()


@dataclass(slots=True)
class Checked:
    """Findings in a store.

    Attributes:
        kind: "broker", "coordinator", or "" if that cannot be read.
        server: the server's name.
        may_have_owner: whether a server may be using the store.
    """

    place: str
    kind: str = ""
    server: str = ""
    may_have_owner: bool = False
    brokers: tuple[str, ...] = ()
    row_count: int = 0
    damage_count: int = 0
    findings: list[Finding] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """Findings in all stores, and between them."""

    stores: list[Checked]
    between: list[Finding]
    between_damage_count: int
    # Of servers that were not given, so that comparisons with them were not made.
    missing: list[str] = field(default_factory=list)

    @property
    def damage_count(self) -> int:
        """Number of findings that are damage."""
        return self.between_damage_count + sum(store.damage_count for store in self.stores)


class CheckedStores(TypedDict):
    """Findings in all stores.

    Attributes:
        whole: whether nothing is damaged.
        damage_count: findings that are damage.
        between: findings that compare stores.
        missing: servers that were not given, so that comparisons with them were not made.
    """

    whole: bool
    damage_count: int
    stores: list[Checked]
    between: list[Finding]
    missing: list[str]


@dataclass(slots=True)
class _Open:
    checked: Checked
    store: ReadOnlyStore
    findings: Findings = field(default_factory=Findings)


async def check_stores(
    places: Sequence[str], progress: Progress, etcd: str | None, cluster_id: str
) -> Report:
    """Check stores.

    Args:
        etcd: addresses of the etcd of the stores' cluster; None: they were not given.
        cluster_id: the cluster, of several in one etcd.
    Raises:
        InvalidConfig: there is no store at a place, or two are of the same server.
        StoreInUse: a server has a directory open.
    """
    checked: list[Checked] = []
    opened: list[_Open] = []
    try:
        async with aclosing(Ends(etcd, cluster_id)) as ends:
            for place in places:
                one = Checked(place)
                checked.append(one)
                await _open(one, opened, ends)
        names = [(one.checked.kind, one.checked.server) for one in opened]
        for name in names:
            if names.count(name) > 1:
                raise InvalidConfig(f"two of the stores are of the {name[0]} {name[1]}")
        between = await _check_all(opened, progress)
    finally:
        for each in opened:
            await each.store.close()
    known = {one.server for one in checked if one.kind == "broker"}
    listed = dict.fromkeys(name for one in checked for name in one.brokers)
    missing = [name for name in listed if name not in known]
    return Report(checked, between.kept, between.damage_count, missing)


async def _open(checked: Checked, opened: list[_Open], ends: Ends) -> None:
    findings = Findings()
    try:
        await ends.compare(checked.place, findings)
        store = await open_read_only(checked.place)
    except StoreDamaged as error:
        findings.damage("files", checked.place, str(error))
    except StoreFailed as error:
        raise InvalidConfig(f"{checked.place} cannot be read: {error}") from error
    else:
        opened.append(_Open(checked, store, findings))
        identity: StoreIdentity | None = None
        try:
            row = await store.get(_META, store_identity.KEY)
            identity = StoreIdentity.FromString(row) if row is not None else None
        except (RowsUnreadable, KeyError, DecodeError) as error:
            findings.damage("identity", _META, f"the store's identity cannot be read: {error}")
        if identity is not None:
            checked.kind, checked.server = identity.kind, identity.member
            checked.brokers = tuple(identity.brokers)
        else:
            findings.damage("identity", _META, "the store does not say to which server it belongs")
        for damage in store.damaged_heads():
            findings.damage("values", checked.place, damage)
        checked.may_have_owner = store.may_have_owner
        if store.lost_tail:
            findings.note(
                "unsynced",
                checked.place,
                "its broker has durability os, and was not stopped before the machine went down:"
                " what was not synced is missing, and the next start opens a higher ledger id",
            )
    checked.findings = findings.kept
    checked.damage_count = findings.damage_count


async def _check_all(opened: Sequence[_Open], progress: Progress) -> Findings:
    between = Findings()
    coordinators: dict[int, OfflineCoordinator] = {}
    for one in opened:
        if one.checked.kind == "coordinator":
            found = await check_coordinator(one.store, one.findings, _counting(one, progress))
            if found.tcid is not None:
                coordinators[found.tcid] = found
    decisions = Decisions(coordinators, between)
    for one in opened:
        if one.checked.kind == "broker":
            await _check_broker(one, decisions, progress)
    for one in opened:
        one.checked.findings = one.findings.kept
        one.checked.damage_count = one.findings.damage_count
    return between


async def _check_broker(one: _Open, decisions: Decisions, progress: Progress) -> None:
    name = one.checked.server

    def saw(txn_id: TxnID, where: str, status: common.TxnStatus) -> None:
        decisions.saw(name, txn_id, where, status)

    broker = await check_broker(one.store, one.findings, saw, _counting(one, progress))
    decisions.check_watermarks(name, broker)


def _counting(one: _Open, progress: Progress) -> Callable[[int], object]:
    def passed(row_count: int) -> None:
        one.checked.row_count += row_count
        progress(one.checked.place, one.checked.row_count)

    return passed


def run_check(
    places: Sequence[str], progress: Progress, etcd: str | None, cluster_id: str
) -> Report:
    """Check stores; see check_stores."""
    return asyncio.run(check_stores(places, progress, etcd, cluster_id))
