"""Mistakes in how the SDK finds brokers, and follows partitions from one to another."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_ANY_BROKER = "client/magnetar/link/any_broker.py"
_CONNECTION = "client/magnetar/link/connection.py"
_SHARD = "client/magnetar/link/shard_connection.py"
_ROUTE = "client/magnetar/link/topic_route.py"
_REQUESTS = "client/magnetar/link/requests.py"
_SESSION = "client/magnetar/link/session.py"
_WHOLE_TOPICS = "client/magnetar/link/whole_topics.py"

MUTANTS = (
    Mutant(
        name="dead-broker-asked-first",
        file=_ANY_BROKER,
        old="            self._order.insert(0, connection)",
        new="            self._order.append(connection)",
        mistake="A broker that is away is asked first by every request.",
    ),
    Mutant(
        name="each-broker-gets-another-call",
        file=_ANY_BROKER,
        old="        bear_token(body, self._runtime)\n",
        new="",
        mistake="A call that two brokers get bears no token: it may take effect twice.",
    ),
    Mutant(
        name="stranger-answers-for-the-cluster",
        file=_ANY_BROKER,
        old="isinstance(error, (*STRANGERS, ClientClosed))",
        new="isinstance(error, ClientClosed)",
        mistake="A server of another cluster among the addresses keeps the client from ours.",
    ),
    Mutant(
        name="stranger-of-the-first-moment",
        file=_SESSION,
        old="        self._runtime.cluster = self._runtime.cluster.learned(told, self.title)",
        new="        self._runtime.cluster = ClusterIdentity().learned(told, self.title)",
        mistake="A server whose handshake began before any cluster was known may be of another.",
    ),
    Mutant(
        name="members-never-asked-again",
        file=_ANY_BROKER,
        old="        self._on_silent()",
        new="        log.debug('others are asked')",
        mistake="The members are not asked for again when a broker is away.",
    ),
    Mutant(
        name="dead-broker-waited-for",
        file=_CONNECTION,
        old="        if self._nobody_is_there:\n",
        new="        if self._nobody_is_there and self._closed:\n",
        mistake="Who asks any broker waits for one that is known to be away.",
    ),
    Mutant(
        name="doubt-forgotten-at-the-next-link",
        file=_REQUESTS,
        old="            if not in_doubt or type(body) in HARMLESS_BODIES:\n",
        new="            if in_doubt or error:\n",
        mistake="A request that may have arrived is said to have had no effect.",
    ),
    Mutant(
        name="closed-client-had-no-effect",
        file=_REQUESTS,
        old="        except MagnetarError as error:\n            if not in_doubt",
        new=(
            "        except ClientClosed:\n"
            "            raise\n"
            "        except MagnetarError as error:\n"
            "            if not in_doubt"
        ),
        mistake="A request under way when the client closes is said to have had no effect.",
    ),
    Mutant(
        name="close-keeps-an-answer-back",
        file=_REQUESTS,
        old='                on_result(ClientClosed("the client was closed"))\n',
        new="",
        mistake="Whoever waits for what the client asks in the background waits for ever.",
    ),
    Mutant(
        name="waiting-at-the-dead-address",
        file=_SHARD,
        old="        if self._waiters:\n            self._wait()",
        new="        if not self._waiters:\n            self._wait_no_more()",
        mistake="Whoever waits for a broker's link does not wait for that of the next one.",
    ),
    Mutant(
        name="pushes-after-a-move-are-lost",
        file=_SHARD,
        old="                connection.register(addressee, on_push)",
        new="                log_count = len(told)  # noqa: F841",
        mistake="A consumer whose partition moved gets no messages from its new broker.",
    ),
    Mutant(
        name="moved-and-never-looked-up",
        file=_SHARD,
        old="        self._look_up()\n        return True",
        new="        return True",
        mistake="Whoever is told that a partition moved asks the same broker again.",
    ),
    Mutant(
        name="fixed-address-asked-for-ever",
        file=_REQUESTS,
        old="(error.kind is not ErrorKind.LOOK_UP or self.moved())",
        new="(error.kind is not ErrorKind.LOOK_UP or self.moved() or True)",
        mistake="At a fixed address a request is repeated although another broker has to answer.",
    ),
    Mutant(
        name="route-of-another-topic",
        file=_ROUTE,
        old="            if topic_id == self.topic_id and len(addresses)",
        new="            if len(addresses)",
        mistake="The partitions of a topic that was made anew count as those of the one before.",
    ),
    Mutant(
        name="partial-answer-shown-as-whole",
        file=_WHOLE_TOPICS,
        old="        found.update((one, told[one]) for one in numbers)",
        new="        found.update(told)",
        mistake="What a broker tells of partitions that others have counts as much as theirs.",
    ),
    Mutant(
        name="two-topics-in-one-answer",
        file=_WHOLE_TOPICS,
        old="        if reply.topic_id != route.topic_id:",
        new="        if not reply.topic_id:",
        mistake="Partitions of a topic and of its successor come in one description.",
    ),
)
