"""Mistakes in the SDK's producers, pipelines and transactions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_PARTICIPANTS = "client/magnetar/transactions/participants.py"
_TRANSACTION = "client/magnetar/transactions/transaction_work.py"
_CLOSED_BATCH = "client/magnetar/messaging/closed_batch.py"
_WHOLE_BATCH = "client/magnetar/transactions/whole_batch.py"
_SENDER = "client/magnetar/messaging/partition_sender.py"
_DELIVERY = "client/magnetar/messaging/batch_delivery.py"
_FOLLOWED = "client/magnetar/messaging/followed_transactions.py"
_PIPELINE = "client/magnetar/link/in_flight.py"
_BLOCK = "client/magnetar/transactions/transaction_block.py"
_PRODUCER = "client/magnetar/transactions/transactional_producer.py"

MUTANTS = (
    Mutant(
        name="commit-before-plain-sends",
        file=_PARTICIPANTS,
        old="                await sender.plain.drain()",
        new="                sender.plain.close_batch()",
        mistake="A commit does not wait for the plain sends that were made before it.",
    ),
    Mutant(
        name="plain-batch-not-closed",
        file=_PARTICIPANTS,
        old="            if sender.plain is not None:\n                sender.plain.close_batch()",
        new=(
            "            if sender.plain is not None and sender.plain.is_empty:\n"
            "                sender.plain.close_batch()"
        ),
        mistake="What is gathered for plain sends leaves after the commit that comes behind it.",
    ),
    Mutant(
        name="second-sender-not-counted",
        file=_PARTICIPANTS,
        old="        for sender in self.senders:\n            producers[sender.name]",
        new="        for sender in self.senders[:8]:\n            producers[sender.name]",
        mistake="A commit names the first eight partitions' counts only.",
    ),
    Mutant(
        name="acks-not-drained",
        file=_PARTICIPANTS,
        old="        for acks in self.acks:\n            await acks.drain()\n",
        new="",
        mistake="A commit does not wait for the acks of its transaction.",
    ),
    Mutant(
        name="commit-leads-nobody",
        file=_PARTICIPANTS,
        old="            if committed:\n                self.lead_plain_sends()",
        new="            if committed and self._leads:\n                self.lead_plain_sends()",
        mistake="Plain sends after a commit do not name the transaction that they follow (rule k).",
    ),
    Mutant(
        name="abort-leads-nobody",
        file=_DELIVERY,
        old="        if not self._following:\n",
        new="        if not self._following and self._plain is None:\n",
        mistake="After an abort, whatever the transaction followed does not lead any more.",
    ),
    Mutant(
        name="follow-dropped-by-any-confirmation",
        file=_DELIVERY,
        old=(
            "        if self._plain is None or reply.all_settled:\n"
            "            self._following.forget(batch.followed)\n"
        ),
        new=(
            "        if self._plain is None:\n"
            "            self._following.forget(self._following.now())\n"
            "        elif reply.all_settled:\n"
            "            self._following.forget(batch.followed)\n"
        ),
        mistake="Any confirmation drops whom plain sends follow, also one of an earlier send.",
    ),
    Mutant(
        name="newest-leads-alone",
        file=_DELIVERY,
        old="        self._following.forget(self._followed)\n",
        new="        self._following.forget(self._following.now())\n",
        mistake="Of transactions that overlapped, what comes after them names the last one only.",
    ),
    Mutant(
        name="unsettled-followed-no-more",
        file=_DELIVERY,
        old="self._following.forget_settled(batch.followed, reply.settled_txn_ids)",
        new="self._following.forget(batch.followed)",
        mistake="Who has named several that it follows makes later ones name none of them.",
    ),
    Mutant(
        name="transaction-follows-nobody",
        file=_DELIVERY,
        old="        self._followed = self._following.now()\n",
        new="        self._followed = FollowedTransactions().now()\n",
        mistake="The next transaction of a producer does not name the one that it follows.",
    ),
    Mutant(
        name="repeat-names-no-leader",
        file=_DELIVERY,
        old="        batch.patient = bool(batch.followed.txn_ids)\n",
        new="        batch.patient = bool(batch.followed.txn_ids) and not batch.attempts\n",
        mistake="A send that is repeated names nobody whom it follows.",
    ),
    Mutant(
        name="all-settled-taken-for-now",
        file=_DELIVERY,
        old=(
            "        if self._plain is None or reply.all_settled:\n"
            "            self._following.forget(batch.followed)\n"
        ),
        new=(
            "        if self._plain is None:\n"
            "            self._following.forget(batch.followed)\n"
            "        elif reply.all_settled:\n"
            "            self._following.forget(self._following.now())\n"
        ),
        mistake="The answer to a send also settles transactions that have ended since it left.",
    ),
    Mutant(
        name="newest-left-out",
        file=_FOLLOWED,
        old="            self._drop([next(iter(self._numbers))])\n",
        new="            self._drop([next(reversed(self._numbers))])\n",
        mistake="Of too many transactions to name, the one that has ended last is left out.",
    ),
    Mutant(
        name="names-not-renewed",
        file=_FOLLOWED,
        old="            self._drop([next(iter(self._numbers))])\n        self._seen = None\n",
        new="            self._drop([next(iter(self._numbers))])\n",
        mistake="Sends name those that earlier ones have named, and not who has ended since.",
    ),
    Mutant(
        name="settled-taken-by-their-number",
        file=_FOLLOWED,
        old="        if left and len(settled) < len(seen.txn_ids):",
        new="        if left and len(settled) < len(left):",
        mistake="An answer that names as many as are left is taken to name those that are left.",
    ),
    Mutant(
        name="later-ones-forgotten",
        file=_FOLLOWED,
        old="            if number > seen.last_number:",
        new="            if number > seen.last_number + 1:",
        mistake="An answer also settles the transaction that has ended after its send had left.",
    ),
    Mutant(
        name="resent-after-gap",
        file=_DELIVERY,
        old=(
            "            if isinstance(error, SequenceGap) and tail[0].attempts <= 1 and "
            "tail[0].sequence_id:"
        ),
        new="            if isinstance(error, SequenceGap) and tail[0].sequence_id:",
        mistake="Batches that may have arrived are sent again under a new producer id after a gap.",
    ),
    Mutant(
        name="resent-after-any-refusal",
        file=_DELIVERY,
        old="            self._next_sequence = 0\n            if",
        new="            self._next_sequence = sum(batch.count for batch in tail)\n            if",
        mistake="After a refusal the new producer id does not begin with 0.",
    ),
    Mutant(
        name="id-kept-after-refusal",
        file=_DELIVERY,
        old=(
            "            self.producer_id = self._runtime.new_id()\n"
            "            self._next_sequence = 0"
        ),
        new="            self._next_sequence = 0",
        mistake="After a refusal numbers begin anew under the same producer id.",
    ),
    Mutant(
        name="confirmed-counts-batches",
        file=_DELIVERY,
        old="        self.confirmed_count += batch.count",
        new="        self.confirmed_count += 1",
        mistake="A commit counts batches where the broker counts messages.",
    ),
    Mutant(
        name="first-failure-not-kept",
        file=_SENDER,
        old=(
            "        if self.plain is not None and self.failure is None:\n"
            "            self.failure = error\n"
            "        # What fails"
        ),
        new="        # What fails",
        mistake="A transaction's sender goes on after a batch of it has failed.",
        unseen_because=(
            "The transaction hears of every failure before the sender goes on, and has all of its"
            " senders keep it."
        ),
    ),
    Mutant(
        name="budget-not-given-back",
        file=_DELIVERY,
        old=(
            "        self._on_refused(tail, error)\n"
            "        for batch in tail:\n"
            "            self._budget.give_back(batch.size, batch.count)\n"
        ),
        new="        self._on_refused(tail, error)\n",
        mistake="What fails stays in the budget: in the end nothing can be sent.",
    ),
    Mutant(
        name="rewritten-out-of-order",
        file=_PIPELINE,
        old="            item.in_flight = False\n        self._written = 0",
        new="            item.in_flight = False\n        self._written = min(self._written, 1)",
        mistake="After a broken link, the first item is not written again.",
    ),
    Mutant(
        name="answer-of-old-attempt",
        file=_PIPELINE,
        old="        elif item.in_flight and attempt == item.attempts:",
        new="        elif item.in_flight:",
        mistake="An error that an earlier attempt was answered with counts for the present one.",
    ),
    Mutant(
        name="gap-behind-failure-is-final",
        file=_PIPELINE,
        old="        follows_a_failure = isinstance(error, SequenceGap) and at > 0",
        new="        follows_a_failure = isinstance(error, SequenceGap) and at > 1",
        mistake="The second item behind one that failed for a moment is given up.",
    ),
    Mutant(
        name="confirmed-out-of-order",
        file=_PIPELINE,
        old=(
            "            item.finished = True\n"
            "            self._written = max(0, self._written - 1)"
        ),
        new="            item.finished = True",
        mistake="What is confirmed still counts as under way: fewer and fewer leave.",
    ),
    Mutant(
        name="timeout-is-no-effect",
        file=_PIPELINE,
        old="            if self._items[0].attempts:",
        new="            if self._items[0].attempts > 1:",
        mistake="A send whose only attempt was not answered in time is said to have had no effect.",
    ),
    Mutant(
        name="deadline-forgets-what-is-under-way",
        file=_PIPELINE,
        old=(
            "            self._lose_flight()\n"
            "            self._refuse_from(0, error)\n"
            "        self._watch_deadline()"
        ),
        new="            self._refuse_from(0, error)\n        self._watch_deadline()",
        mistake="After a deadline, a refusal of the next copy speaks for the first one as well.",
    ),
    Mutant(
        name="late-refusal-leaves-doubt",
        file=_PIPELINE,
        old="            item.doubtful -= {(lane, attempt)}",
        new="            item.doubtful -= {(lane, item.attempts)}",
        mistake="A copy that was refused late is said to be under way for ever.",
    ),
    Mutant(
        name="refused-link-had-no-effect",
        file=_PIPELINE,
        old="            self._refuse_from(0, _in_doubt(self._items[0], result))",
        new="            self._refuse_from(0, result)",
        mistake="What was sent on a link had no effect, it is said, when the next link is refused.",
    ),
    Mutant(
        name="new-lane-beside-old",
        file=_PIPELINE,
        old="            if item.lane != items[0].lane:\n                return",
        new="            if item.lane < items[0].lane:\n                return",
        mistake="Items under a new producer id leave beside those under the old one.",
    ),
    # Transactions
    Mutant(
        name="join-without-waiting",
        file=_TRANSACTION,
        old="        await self._participants.enrolled()\n        if self._phase",
        new="        if self._phase",
        mistake="A send is told to count before the coordinator knows its partition.",
    ),
    Mutant(
        name="refused-commit-is-unknown",
        file=_TRANSACTION,
        old=(
            "        except InvalidTxnState:\n"
            "            self._settle(TransactionStatus.ABORTED)\n"
            "            raise\n"
            "        except (TxnNotFound"
        ),
        new=(
            "        except InvalidTxnState:\n"
            "            self._settle(TransactionStatus.COMMITTED)\n"
            "            raise\n"
            "        except (TxnNotFound"
        ),
        mistake="A commit that is refused is taken for one that has happened.",
    ),
    Mutant(
        name="unknown-commit-leads-nobody",
        file=_TRANSACTION,
        old=(
            "            if self._phase in COMMIT_WAS_ASKED:\n"
            "                self._participants.lead_plain_sends()\n"
            "                self._inquiry.resolve_soon()"
        ),
        new=(
            "            if self._phase in COMMIT_WAS_ASKED:\n"
            "                self._inquiry.resolve_soon()"
        ),
        mistake="Behind a commit whose outcome is unknown plain sends follow nobody (rule k).",
    ),
    Mutant(
        name="unknown-commit-not-resolved",
        file=_TRANSACTION,
        old=(
            "                self._participants.lead_plain_sends()\n"
            "                self._inquiry.resolve_soon()\n"
            "            raise\n"
            "        self._settle(status)\n\n"
            "    async def _abort"
        ),
        new=(
            "                self._participants.lead_plain_sends()\n"
            "            raise\n"
            "        self._settle(status)\n\n"
            "    async def _abort"
        ),
        mistake=(
            "Nobody finds out about a commit whose outcome is unknown: its acks stay undecided."
        ),
    ),
    Mutant(
        name="doomed-commit",
        file=_TRANSACTION,
        old="        failure = self._failure\n        if failure is None:",
        new="        failure = self._failure\n        if failure is None or failure.retriable:",
        mistake="A transaction of which a send failed for a passing reason is committed.",
    ),
    Mutant(
        name="whole-batch-again-as-another",
        file=_WHOLE_BATCH,
        old=(
            "        elif self._batch.finished and not self._is_stored:\n"
            "            plain.send_again(self._batch, timeout_ms=timeout_ms)"
        ),
        new=(
            "        elif self._batch.finished and not self._is_stored:\n"
            "            self._batch.sequence_id = plain._delivery._next_sequence\n"
            "            plain.send_again(self._batch, timeout_ms=timeout_ms)"
        ),
        mistake="A lazy transaction that is committed again sends its batch as a new one.",
    ),
    Mutant(
        name="whole-batch-refusal-is-final",
        file=_CLOSED_BATCH,
        old="    if not batch.in_doubt or isinstance(error, EFFECT_UNKNOWN):",
        new="    if True:",
        mistake=(
            "A lazy commit, or a plain send, whose earlier copy may still be under way is said to"
            " have had no effect."
        ),
    ),
    Mutant(
        name="whole-batch-aborted-by-close",
        file=_SENDER,
        old="            if batch.in_doubt:\n                raise OutcomeUnknown(",
        new="            if not batch.in_doubt:\n                raise OutcomeUnknown(",
        mistake="A lazy commit is said to be aborted since its producer is closed; it was stored.",
    ),
    Mutant(
        name="close-forgets-what-is-under-way",
        file=_PIPELINE,
        old=(
            "            self._lose_flight()\n"
            "            self._refuse_from(0, error)\n\n"
            "    def retire"
        ),
        new="            self._refuse_from(0, error)\n\n    def retire",
        mistake="What was under way when its producer was closed is said to have had no effect.",
    ),
    Mutant(
        name="doubt-of-the-first-only",
        file=_PIPELINE,
        old="            if item.in_flight and item.reply is None:",
        new="            if item is self._items[0]:",
        mistake="Of several sends on a link that broke, only the first one may yet arrive.",
    ),
    Mutant(
        name="abort-without-drain",
        file=_TRANSACTION,
        old="                await self._participants.drain()\n        except TimeoutError:",
        new="                await self._participants.enrolled()\n        except TimeoutError:",
        mistake="An abort does not wait for what is under way.",
    ),
    Mutant(
        name="pair-not-told",
        file=_PRODUCER,
        old="            self._identity = identity\n",
        new="            pass\n",
        mistake="Each transaction begins with the pair of the last one, and is refused at first.",
    ),
    Mutant(
        name="next-pair-not-taken",
        file=_PRODUCER,
        old="                if following is None:\n                    raise\n",
        new="                if following:\n                    raise\n",
        mistake="After an end that nobody answered, a producer cannot begin again.",
    ),
    # Blocks
    Mutant(
        name="forgotten-txn-forgiven",
        file=_BLOCK,
        old="            self._transaction.doom(error)\n",
        new="            pass\n",
        mistake="Who catches the error of a forgotten txn commits without that message.",
    ),
    Mutant(
        name="block-covers-all-clients",
        file=_BLOCK,
        old="        return self._transaction is not None and self._runtime is runtime",
        new="        return self._transaction is not None",
        mistake="Sends of another client are refused in the block of a transaction.",
    ),
    # Transactional producers
    Mutant(
        name="complete-commits-newer",
        file=_PRODUCER,
        old="        commits = prepared == self._prepared",
        new="        commits = prepared.producer_id == self._prepared.producer_id",
        mistake="complete() compares producer ids, and not which transaction is prepared.",
    ),
    Mutant(
        name="prepared-with-next-pair",
        file=_PRODUCER,
        old="            reply.ongoing_producer_id,\n            reply.ongoing_producer_epoch,",
        new="            reply.producer_id,\n            reply.producer_epoch,",
        mistake="What was kept is told with the new pair, and never matches the database's.",
    ),
    Mutant(
        name="abandoned-not-aborted",
        file=_PRODUCER,
        old=(
            "            await transaction.abort()\n"
            "        except (InvalidTxnState, ProducerFenced,"
        ),
        new=(
            "            transaction.withdraw()\n        except (InvalidTxnState, ProducerFenced,"
        ),
        mistake=(
            "What is open when transactions are initialised again stays open until its timeout."
        ),
    ),
    Mutant(
        name="inputs-not-redelivered",
        file=_PRODUCER,
        old="        consumer.redeliver()\n",
        new="",
        mistake="After a batch failed, its inputs do not come again.",
    ),
    Mutant(
        name="completion-takes-any-transaction",
        file="client/magnetar/admin/transactional_ids.py",
        old=(
            "                keep_prepared=True,\n"
            "                producer_id=producer_id,\n"
            "                producer_epoch=producer_epoch,\n"
        ),
        new="                keep_prepared=True,\n",
        mistake="Who completes a transaction gets hold of the next one, and fences its program.",
    ),
    Mutant(
        name="named-participants-unconfirmed",
        file="client/magnetar/transactions/enrollment.py",
        old="        self._unconfirmed_partitions = [] if is_durable else list(self.partitions)",
        new="        self._unconfirmed_partitions = []",
        mistake="A send is confirmed while a crash may still take its transaction.",
    ),
)
