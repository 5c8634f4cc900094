"""Named mistakes: real bugs, and one for each rule and invariant at least."""

from __future__ import annotations

from tests.mutants.catalogue import (
    broker,
    broker_consuming,
    broker_topics,
    cli,
    client,
    cluster,
    console,
    coordinator,
    core,
    kafka,
    pipeline,
    storage,
)
from tests.mutants.mutant import Mutant

CATALOGUE: tuple[Mutant, ...] = (
    *core.MUTANTS,
    *storage.MUTANTS,
    *cluster.MUTANTS,
    *broker.MUTANTS,
    *broker_consuming.MUTANTS,
    *broker_topics.MUTANTS,
    *kafka.MUTANTS,
    *coordinator.MUTANTS,
    *client.MUTANTS,
    *pipeline.MUTANTS,
    *console.MUTANTS,
    *cli.MUTANTS,
)
BY_NAME = {one.name: one for one in CATALOGUE}
