"""Mistakes in the cluster: etcd, leases, claims and handovers."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.operations import Compare, Insert, LeaveOut, Put, ReturnEarly, Without

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "claim-without-lease",
        "magnetar_cluster.etcd.etcd_directory:EtcdDirectory.claim",
        Put("self._put_or_read(_created_at(key, 0), value, 0)", "self._put_or_read(...)"),
        "A shard stays with a member that is gone.",
    ),
    Mutant(
        "any-claim-is-mine",
        "magnetar_cluster.etcd.etcd_directory:EtcdDirectory.claim",
        Without("row.lease != lease"),
        "A member that was restarted takes its former lease's ownership for its own.",
    ),
    Mutant(
        "release-of-any-epoch",
        "magnetar_cluster.etcd.etcd_directory:EtcdDirectory.release",
        Without("_created_at(...)"),
        "A release that comes late deletes the ownership of the next one.",
    ),
    Mutant(
        "zero-seconds-renew",
        "magnetar_cluster.etcd.etcd_client:EtcdClient._keep_alive",
        Compare("ttl_s > 0", ">="),
        "A member goes on with a lease that has ended.",
    ),
    Mutant(
        "any-etcd-cluster",
        "magnetar_cluster.etcd.etcd_client:EtcdClient._check",
        Put("not found", "self._cluster_id and found != self._cluster_id"),
        "Endpoints of two etcd clusters give each shard two owners.",
    ),
    Mutant(
        "claims-before-it-has-joined",
        "magnetar_cluster.hosting.host_state:HostState._look_at_free",
        Without("not self.joined"),
        "A member that nobody sees has shards.",
    ),
    Mutant(
        "lease-comes-back",
        "magnetar_cluster.hosting.lease:Lease.silent_at_ms",
        Without("self._ended"),
        "A lease that has ended is alive again when a late renewal is answered.",
    ),
    Mutant(
        "speaks-in-any-epoch",
        "magnetar_cluster.hosting.host_state:HostState.speaks",
        Without("held.epoch == epoch"),
        "A former ownership speaks as soon as the member has the shard again.",
    ),
    Mutant(
        "leaving-repeats-a-claim",
        "magnetar_cluster.hosting.host_state:HostState.decide",
        LeaveOut("self._withdraw(...)"),
        "A server that is told to stop asks for one more shard until it is answered.",
    ),
    Mutant(
        "leaving-forgets-a-claim-under-way",
        "magnetar_cluster.hosting.host_state:HostState._withdraw",
        Without("slot.action is None"),
        "A claim that is granted to a server that stops is not given back.",
    ),
    Mutant(
        "claims-outlive-leases",
        "magnetar_cluster.directory.cluster_directory_state:ClusterDirectoryState._end",
        LeaveOut("self._owners = owners"),
        "A claim is not bound to its member's lease.",
    ),
    Mutant(
        "lease-ignored",
        "magnetar_cluster.hosting.host_state:HostState.speaks",
        Without("self.lease.may_speak()"),
        "Who opened a shard speaks for it until the directory says otherwise.",
    ),
    Mutant(
        "lease-counted-from-answer",
        "magnetar_cluster.hosting.lease:Lease.renewed",
        Insert("sent_at_ms = self._now_ms()"),
        "A renewed lease counts from when its answer came, not from when it was asked for.",
    ),
    Mutant(
        "links-stay",
        "magnetar_cluster.cluster_transport:ClusterTransport.owners_changed",
        ReturnEarly(),
        "A server stays with former owners of other shards, as long as they are silent.",
    ),
    Mutant(
        "released-while-open",
        "magnetar_cluster.hosting.shard_attempts:ShardAttempts._close",
        Insert("await self._directory.release(action.shard, action.epoch)"),
        "A handover gives the claim back first, and closes the shard then.",
    ),
)
