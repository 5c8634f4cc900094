"""The catalogue: small mistakes in every component."""

from __future__ import annotations

from tests.mutants.catalogue import (
    broker_acknowledgements,
    broker_damage,
    broker_delivery,
    broker_directory,
    broker_groups,
    broker_recovery,
    broker_transactions,
    cli,
    client,
    client_consuming,
    client_owners,
    client_routing,
    cluster_hosts,
    coordinator,
    coordinator_transactional_ids,
    core,
    etcd,
    late_copies,
    object_store,
    several_brokers,
    spark,
    storage,
)
from tests.mutants.mutant import Mutant

CATALOGUE: tuple[Mutant, ...] = (
    *core.MUTANTS,
    *storage.MUTANTS,
    *object_store.MUTANTS,
    *etcd.MUTANTS,
    *broker_transactions.MUTANTS,
    *broker_recovery.MUTANTS,
    *broker_acknowledgements.MUTANTS,
    *broker_damage.MUTANTS,
    *broker_delivery.MUTANTS,
    *broker_directory.MUTANTS,
    *broker_groups.MUTANTS,
    *late_copies.MUTANTS,
    *several_brokers.MUTANTS,
    *cluster_hosts.MUTANTS,
    *coordinator.MUTANTS,
    *coordinator_transactional_ids.MUTANTS,
    *client.MUTANTS,
    *client_consuming.MUTANTS,
    *client_routing.MUTANTS,
    *client_owners.MUTANTS,
    *spark.MUTANTS,
    *cli.MUTANTS,
)
