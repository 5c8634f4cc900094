"""Mistakes in the coordinator's transactional ids and named sequences."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_IDENTITY = "coordinator/magnetar_coordinator/metadata/transactional_id.py"
_COMMANDS = "coordinator/magnetar_coordinator/commands/transactional_id_commands.py"
_NAMES = "coordinator/magnetar_coordinator/metadata/named_sequences.py"
_RUNTIME = "coordinator/magnetar_coordinator/runtime.py"
_STORE = "coordinator/magnetar_coordinator/metadata_store.py"

MUTANTS = (
    Mutant(
        name="abort-forgets-sequence",
        file=_NAMES,
        old="        return replace(name, open=None, open_txn_id=None)",
        new="        return NamedSequenceState(name.name)",
        mistake="An abort forgets the name's committed sequence.",
    ),
    Mutant(
        name="abort-counts-as-commit",
        file=_NAMES,
        old="    if action is not TxnAction.COMMIT:",
        new="    if action is not TxnAction.COMMIT and name.committed is not None:",
        mistake="The first sequence of a name counts as committed although it was aborted.",
    ),
    Mutant(
        name="replay-begins-again",
        file=_NAMES,
        old="        if asked.sequence < name.committed:",
        new="        if asked.sequence < name.committed - 1:",
        mistake="A sequence right before the committed one may be begun again.",
    ),
    Mutant(
        name="committed-sequence-again",
        file=_NAMES,
        old="        if asked.sequence == name.committed:\n",
        new="        if asked.sequence == name.committed and name.open is None:\n",
        mistake="While the next sequence is open, the committed one may be begun again.",
    ),
    Mutant(
        name="sibling-run-aborted",
        file=_NAMES,
        old="        return self[:3] == other[:3]",
        new="        return self == other",
        mistake="A task that does not know the content yet aborts its siblings' transaction.",
    ),
    Mutant(
        name="sequence-not-compared",
        file=_NAMES,
        old="        return self[:3] == other[:3]",
        new="        return self.run_token == other.run_token",
        mistake="A run joins the open transaction of another sequence.",
    ),
    Mutant(
        name="fingerprint-not-kept",
        file=_NAMES,
        old="name.name, name.open.sequence, fingerprint=fingerprint or name.open.fingerprint",
        new="name.name, name.open.sequence, fingerprint=fingerprint",
        mistake="The content that was told at the beginning is forgotten with the commit.",
    ),
    Mutant(
        name="fingerprint-not-compared",
        file=_NAMES,
        old="            if asked.fingerprint and name.fingerprint:\n",
        new="            if asked.fingerprint and name.fingerprint and name.open is not None:\n",
        mistake="Other work under a committed sequence's number is taken for a repeat.",
    ),
    Mutant(
        name="joined-without-participants",
        file=_COMMANDS,
        old=(
            "            transaction = runtime.shard.live[name.open_txn_id]\n"
            "            self._add(transaction, participants)"
        ),
        new="            transaction = runtime.shard.live[name.open_txn_id]",
        mistake="Who joins a run is not noted as a participant: its part gets no marker.",
    ),
    Mutant(
        name="repeated-begin-without-participants",
        file=_COMMANDS,
        old=(
            "            transaction = runtime.shard.live[identity.txn_id]\n"
            "            self._add(transaction, participants)"
        ),
        new="            transaction = runtime.shard.live[identity.txn_id]",
        mistake="A repeated begin does not add the participants that it names.",
    ),
    Mutant(
        name="takeover-does-not-abort",
        file=_COMMANDS,
        old="TransactionalIdState.ONGOING and request.keep_prepared:",
        new=(
            "TransactionalIdState.ONGOING and (\n"
            "            request.keep_prepared or identity.two_phase_commit\n"
            "        ):"
        ),
        mistake="A takeover of a two-phase producer keeps what is open without being asked.",
    ),
    Mutant(
        name="takeover-aborts-prepared",
        file=_COMMANDS,
        old="            if ongoing.may_be_prepared and not request.enable_2pc:",
        new="            if identity.two_phase_commit and not request.enable_2pc:",
        mistake="Whether it may be prepared is read from the id, which a takeover changes.",
    ),
    Mutant(
        name="takeover-does-not-wait",
        file=_COMMANDS,
        old="        elif identity.state in rules.COMPLETED:",
        new="        elif identity.state is TransactionalIdState.PREPARE_ABORT:",
        mistake="Who takes an id over does not wait for the commit that is under way.",
    ),
    Mutant(
        name="anybody-adds-to-owned",
        file=_COMMANDS,
        old=(
            "            rules.require_current(identity, pair_of(request.identity))\n"
            "            if identity.txn_id"
        ),
        new="            if identity.txn_id",
        mistake="A fenced instance may add participants to its successor's transaction.",
    ),
    Mutant(
        name="kept-transaction-grows",
        file=_COMMANDS,
        old=(
            "            if identity.is_kept:\n"
            '                raise InvalidTxnState(f"{txn_id} is prepared'
        ),
        new=(
            "            if identity.is_kept and not identity.two_phase_commit:\n"
            '                raise InvalidTxnState(f"{txn_id} is prepared'
        ),
        mistake="What is prepared takes new participants.",
    ),
    Mutant(
        name="end-of-another-transaction",
        file=_COMMANDS,
        old='        if request.HasField("txn_id") and TxnID.from_wire(request.txn_id) != txn_id:',
        new='        if request.HasField("txn_id") and TxnID.from_wire(request.txn_id) > txn_id:',
        mistake="A late end of an earlier transaction ends the one that is ongoing.",
    ),
    Mutant(
        name="identity-forgets-end",
        file=_RUNTIME,
        old="                    self.transactional_ids.completed(record.txn_id)",
        new=(
            "                    self.transactional_ids.completed(decision.txn_id)\n"
            "                    self._waiting.pop(record.txn_id, None)"
        ),
        mistake="Who waits until a transaction has ended everywhere is forgotten with its end.",
    ),
    Mutant(
        name="takeover-keeps-pair",
        file=_IDENTITY,
        old="        producer=epochs.raised(identity.current),\n        timeout_ms=timeout_ms,",
        new="        producer=identity.current,\n        timeout_ms=timeout_ms,",
        mistake="A takeover does not raise the epoch: the zombie goes on writing.",
    ),
    Mutant(
        name="keep-uses-current-pair",
        file=_IDENTITY,
        old="        raised = epochs.raised(identity.producer)\n",
        new="        raised = identity.producer\n",
        mistake="Who keeps a prepared transaction gets the pair that its predecessor has.",
    ),
    Mutant(
        name="commit-keeps-epoch",
        file=_IDENTITY,
        old="    following = epochs.raised(latest)\n",
        new="    following = latest\n",
        mistake="An end does not raise the epoch: a late end counts for the next transaction.",
    ),
    Mutant(
        name="previous-pair-forgotten",
        file=_IDENTITY,
        old="        state=PREPARED[action],\n        producer=producer,\n        prev=latest,",
        new="        state=PREPARED[action],\n        producer=producer,\n        prev=producer,",
        mistake="A repeat of an end with the pair that it was asked with is fenced.",
    ),
    Mutant(
        name="repeat-of-other-action",
        file=_IDENTITY,
        old="        if action is ACTION_OF_STATE[state]:\n            return EndVerdict.REPEAT",
        new="        if action:\n            return EndVerdict.REPEAT",
        mistake="An abort with the previous pair repeats a commit.",
    ),
    Mutant(
        name="timeout-fences",
        file=_IDENTITY,
        old=(
            "    if identity.is_previous(pair):\n"
            "        raise _ended(identity)\n"
            "    if pair != identity.current:"
        ),
        new="    if pair != identity.current:",
        mistake="A producer whose transaction timed out is fenced as if it were taken over.",
    ),
    Mutant(
        name="late-init-takes-over",
        file=_IDENTITY,
        old="    if call.token and call.token in identity.past_call_tokens:",
        new="    if call.token and call.token in identity.past_call_tokens[-1:]:",
        mistake="A copy of InitProducer that arrives two takeovers late fences the live instance.",
    ),
    Mutant(
        name="copy-of-init-takes-over",
        file=_IDENTITY,
        old="        if is_latest:\n            return True\n        raise",
        new="        if is_latest:\n            return False\n        raise",
        mistake="A copy of InitProducer takes the id over from the instance that sent it.",
    ),
    Mutant(
        name="kept-may-begin",
        file=_IDENTITY,
        old=(
            "    if identity.is_kept:\n"
            "        raise InvalidTxnState(\n"
            '            f"{identity.transactional_id!r} has kept'
        ),
        new=(
            "    if identity.is_kept and not identity.two_phase_commit:\n"
            "        raise InvalidTxnState(\n"
            '            f"{identity.transactional_id!r} has kept'
        ),
        mistake="Who kept a prepared transaction may write to it.",
    ),
    Mutant(
        name="begin-does-not-wait",
        file=_IDENTITY,
        old=(
            "    if identity.state in COMPLETED:\n"
            "        raise ConcurrentTransactions(\n"
            '            f"the last transaction of {identity.transactional_id!r} is still ending"\n'
            "        )\n"
            "\n"
            "\n"
            "def begin("
        ),
        new=(
            "    if identity.state is TransactionalIdState.PREPARE_ABORT:\n"
            "        raise ConcurrentTransactions(\n"
            '            f"the last transaction of {identity.transactional_id!r} is still ending"\n'
            "        )\n"
            "\n"
            "\n"
            "def begin("
        ),
        mistake="The next transaction of an id begins while the last commit is under way.",
    ),
    Mutant(
        name="identity-not-stored",
        file=_STORE,
        old="        key = identity.transactional_id.encode()\n",
        new=(
            "        key = identity.transactional_id.encode()\n"
            "        if identity.txn_id is not None and identity.next == identity.prev:\n"
            "            return\n"
        ),
        mistake="A crash forgets who has begun a transaction.",
    ),
    Mutant(
        name="committed-name-not-stored",
        file=_STORE,
        old="        self._commits.batch.put(NAMES, name.name.encode(), encode_name(name))",
        new=(
            "        if name.open is not None:\n"
            "            self._commits.batch.put(NAMES, name.name.encode(), encode_name(name))"
        ),
        mistake="A commit notes its sequence in memory only.",
    ),
)
