------------------------------- MODULE Commit -------------------------------
(*
  How a transaction commits: one coordinator shard, partitions, one subscription, and clients.

  The rules and the invariants are those of docs/protocol/rules.md. Above each action stand
  the rule that the action obeys and the code that it stands for. docs/design/0022-model.md says what
  the model leaves out.

  Messages. `sent` is a set that only grows, and any action may use any message of it at any time. So
  each message may be lost, late, doubled, or overtaken by others. A command that follows from durable
  rows, and that its sender repeats until it is answered, is not a message: it may arrive whenever the
  rows say so.

  Durability. The coordinator has `memory` and durable `rows`. With `GroupCommits`, a step changes the
  memory, and its answers are parked until a group commit (rule a): a group is sealed, and while it is
  written, the memory goes on. Without it, a step and its group commit are one action, which makes far
  fewer states. A participant always writes in one action.

  Mistakes. `Mistake` names a mistake that is planted in the protocol, or is "none".
  tests/spec/runs/ lists the mistakes, and says which invariant finds each.
*)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Clients,       \* each does its steps one after the other, with one producer
    Partitions,    \* each at a broker of its own
    Subscription,  \* it has one message, which transactions acknowledge
    Steps,         \* how many transactions and plain sends a client makes
    Transactions,  \* how many TxnIDs there are; the first is 0
    Reserved,      \* by how many TxnIDs the durable bound runs ahead of the counter
    Crashes,       \* how often the coordinator or a participant may crash
    Announcements, \* how often the coordinator may announce a watermark
    Losses,        \* how often a participant may lose what it had confirmed
    Acks,          \* whether transactions acknowledge the message
    PlainSends,    \* whether clients also send outside of transactions
    Undercounts,   \* whether a commit may count less than was confirmed
    BothAsked,     \* whether a client may ask for an abort, or go on, after it asked for a commit
    Expiry,        \* whether transactions may expire
    Forgetting,    \* whether the coordinator may forget outcomes
    GroupCommits,
    Mistake

VARIABLES
    memory,        \* the coordinator's state
    rows,          \* what of it is durable
    parked,        \* the coordinator's answers that wait for the open group
    sealed,        \* the group that is being written, if there is one
    participants,  \* the state of partitions and subscription, which is durable
    markRows,      \* the watermark that each participant has stored
    clients,
    sent,
    faults,        \* how many faults may still happen
    fate           \* how a participant once ended a transaction; nothing in the protocol reads this
vars == <<memory, rows, parked, sealed, participants, markRows, clients, sent, faults, fate>>

Participants == Partitions \cup {Subscription}
Txns == 0 .. Transactions - 1
NoTxn == 99
NoCounts == [p \in Participants |-> 0]
Ended == {"committed", "aborted", "forgotten", "lost"}
Has(mistake) == Mistake = mistake

Init ==
    /\ memory = [next |-> 0,        \* the TxnID that is issued next
                 bound |-> 0,       \* no TxnID from here on has been told to anybody
                 announced |-> 0,   \* the last watermark
                 status |-> [t \in Txns |-> "unknown"],
                 outcome |-> [t \in Txns |-> "none"],
                 enrolled |-> [t \in Txns |-> {}],
                 counts |-> [t \in Txns |-> NoCounts]]
    /\ rows = memory
    /\ parked = {}
    /\ sealed = <<>>
    /\ participants = [p \in Participants |->
           [held |-> [t \in Txns |-> 0],        \* messages or acks that are neither visible nor dropped
            follows |-> [t \in Txns |-> {}],    \* the transactions for which its end waits (rule k)
            ended |-> [t \in Txns |-> "no"],    \* the recorded ends
            log |-> <<>>,                       \* what is visible, in order
            mark |-> 0, live |-> {}]]           \* the watermark: below it, all but `live` have ended
    /\ markRows = [p \in Participants |-> [mark |-> 0, live |-> {}]]
    /\ clients = [c \in Clients |->
           [phase |-> "idle", step |-> 0, txn |-> NoTxn, wrote |-> {}, leads |-> [p \in Participants |-> {}]]]
    /\ sent = {}
    /\ faults = [crashes |-> Crashes, announcements |-> Announcements, losses |-> Losses]
    /\ fate = [p \in Participants |-> [t \in Txns |-> "no"]]

-----------------------------------------------------------------------------
(* Clients *)

Say(messages) == sent' = sent \cup messages
OnlyClients == UNCHANGED <<memory, rows, parked, sealed, participants, markRows, faults, fate>>

\* client/magnetar/transactions/beginning.py
AskForTransaction(c) ==
    /\ clients[c].phase = "idle" /\ clients[c].step < Steps
    /\ clients' = [clients EXCEPT ![c].phase = "asked", ![c].step = @ + 1, ![c].txn = NoTxn, ![c].wrote = {}]
    /\ Say({[kind |-> "begin", client |-> c, step |-> clients[c].step + 1]})
    /\ OnlyClients

\* A client sends one message at most to each participant, at once. Messages may be late, so this covers
\* sends at other times. AddPartition leaves beside each send, and is the same message here.
\* client/magnetar/transactions/txn_send.py
\* client/magnetar/messaging/acknowledging/acks_in_transactions.py
Write(c) ==
    /\ clients[c].phase = "asked"
    /\ \E m \in sent : m.kind = "begun" /\ m.client = c /\ m.step = clients[c].step
         /\ \E targets \in SUBSET (IF Acks THEN Participants ELSE Partitions) :
              /\ clients' = [clients EXCEPT ![c].phase = "open", ![c].txn = m.txn, ![c].wrote = targets]
              /\ Say({[kind |-> "write", txn |-> m.txn, at |-> p, client |-> c, step |-> m.step,
                       follows |-> clients[c].leads[p]] : p \in targets})
    /\ OnlyClients

\* The client relies on a write when both the participant and the coordinator have answered.
IsConfirmed(t, p) == {[kind |-> "enrolled", txn |-> t, at |-> p], [kind |-> "written", txn |-> t, at |-> p]} \subseteq sent

IsInLog(p, c, step) == \E i \in DOMAIN participants[p].log :
    participants[p].log[i].client = c /\ participants[p].log[i].step = step

\* Rule g: a commit carries the confirmed counts. Rule k: it waits for the producer's earlier plain sends.
\* client/magnetar/transactions/participants.py: flush, counts
AskToEnd(c, action) ==
    LET me == clients[c]
        confirmed == {p \in me.wrote : IsConfirmed(me.txn, p)}
    IN
    /\ me.phase = "open"
    /\ (action = "commit" /\ ~Has("commit_overtakes_plain_sends")) =>
           \A m \in sent : (m.kind = "plain" /\ m.client = c) => IsInLog(m.at, c, m.step)
    /\ (action = "commit" /\ ~Undercounts) => confirmed = me.wrote
    /\ \E counted \in SUBSET (IF action = "commit" THEN confirmed ELSE {}) :
           /\ (action = "commit" /\ ~Undercounts) => counted = confirmed
           /\ Say({[kind |-> "end", txn |-> me.txn, action |-> action,
                    counts |-> [p \in Participants |-> IF p \in counted THEN 1 ELSE 0]]})
    /\ clients' = [clients EXCEPT ![c].phase = "ending"]
    /\ OnlyClients

\* client/magnetar/transactions/transaction_state.py: BOTH_ASKED
AskToAbortAsWell(c) ==
    /\ BothAsked /\ clients[c].phase = "ending"
    /\ Say({[kind |-> "end", txn |-> clients[c].txn, action |-> "abort", counts |-> NoCounts]})
    /\ sent' # sent /\ UNCHANGED clients /\ OnlyClients

\* Rule k: what the producer sends next follows this transaction. An aborted one only follows on.
\* client/magnetar/transactions/participants.py: lead_plain_sends, release
HearOutcome(c) ==
    LET me == clients[c] IN
    /\ me.phase \in {"open", "ending"}
    /\ \E m \in sent : m.kind = "answer" /\ m.txn = me.txn
         /\ clients' = [clients EXCEPT ![c].phase = "idle", ![c].leads = [p \in Participants |->
                IF p \in me.wrote /\ (m.outcome = "commit" \/ @[p] = {}) THEN {me.txn} ELSE @[p]]]
    /\ UNCHANGED sent /\ OnlyClients

\* A commit is not answered. The client goes on, and what it sends next follows this transaction.
\* client/magnetar/transactions/participants.py: lead_plain_sends
GoOnWithoutAnswer(c) ==
    LET me == clients[c] IN
    /\ BothAsked /\ me.phase = "ending"
    /\ \E m \in sent : m.kind = "end" /\ m.txn = me.txn /\ m.action = "commit"
    /\ clients' = [clients EXCEPT ![c].phase = "idle",
                                  ![c].leads = [p \in Participants |-> IF p \in me.wrote THEN {me.txn} ELSE @[p]]]
    /\ UNCHANGED sent /\ OnlyClients

\* Rule k: a plain send names the transactions that it follows.
\* client/magnetar/messaging/sending/followed_transactions.py: FollowedTransactions
SendPlainly(c, p) ==
    /\ PlainSends /\ clients[c].phase = "idle" /\ clients[c].step < Steps /\ clients[c].leads[p] # {}
    /\ clients' = [clients EXCEPT ![c].step = @ + 1]
    /\ Say({[kind |-> "plain", client |-> c, step |-> clients[c].step + 1, at |-> p, follows |-> clients[c].leads[p]]})
    /\ OnlyClients

-----------------------------------------------------------------------------
(* The coordinator *)

Durable(state) == [state EXCEPT !.announced = 0]
OnlyCoordinator == UNCHANGED <<participants, markRows, clients, fate>>

Answered(group) == UNION {group[i].answers : i \in DOMAIN group}
Joined(answers) == [i \in DOMAIN sealed |-> [sealed[i] EXCEPT !.answers = @ \cup answers]]

\* Rule a: answers leave when all that was decided before them is durable: with the open group, if it
\* has anything, else with the group that is being written, else at once.
\* coordinator/magnetar_coordinator/runtime.py: carry_out, answer
\* storage/magnetar_storage/group_commit.py: position, when_written
Decide(state, answers) ==
    LET written == IF sealed = <<>> THEN rows ELSE sealed[1].state
        joins == sealed # <<>> /\ (Durable(state) = written \/ Has("answers_join_an_earlier_group"))
    IN
    /\ memory' = state
    /\ IF Has("answers_before_durable") THEN Say(answers) /\ UNCHANGED <<rows, parked, sealed>>
       ELSE IF ~GroupCommits THEN rows' = Durable(state) /\ Say(answers) /\ UNCHANGED <<parked, sealed>>
       ELSE IF joins THEN sealed' = Joined(answers) /\ UNCHANGED <<rows, parked, sent>>
       ELSE IF Durable(state) = written /\ ~Has("repeats_wait_for_rows") THEN Say(answers) /\ UNCHANGED <<rows, parked, sealed>>
       ELSE parked' = parked \cup answers /\ UNCHANGED <<rows, sealed, sent>>
    /\ OnlyCoordinator

IsNews(answer) == answer \notin sent \cup parked \cup Answered(sealed)

\* The bound runs ahead of the counter, so that a new TxnID may be told before its row is durable.
\* coordinator/magnetar_coordinator/ending/brokers.py: advance_watermark
\* coordinator/magnetar_coordinator/metadata_store.py: reserve
Reserve ==
    /\ memory.bound = memory.next /\ memory.next < Transactions
    /\ Decide([memory EXCEPT !.bound = memory.next + Reserved], {})
    /\ UNCHANGED faults

\* Rule a. The id may be told before its row is durable, since the bound is durable: invariant 8.
\* coordinator/magnetar_coordinator/transactions/shard.py: new_txn
\* coordinator/magnetar_coordinator/runtime.py: answer_issued
Begin ==
    /\ memory.next < Transactions
    /\ \E m \in sent : m.kind = "begin"
         /\ LET t == memory.next
                state == [memory EXCEPT !.next = t + 1, !.status[t] = "open",
                                        !.bound = IF t >= @ THEN t + Reserved ELSE @]
                begun == {[kind |-> "begun", client |-> m.client, step |-> m.step, txn |-> t]}
            IN IF t < rows.bound
               THEN memory' = state /\ Say(begun) /\ UNCHANGED <<rows, parked, sealed>> /\ OnlyCoordinator
               ELSE Decide(state, begun)
    /\ UNCHANGED faults

\* coordinator/magnetar_coordinator/transactions/shard.py: add_participants
Enroll ==
    /\ \E m \in sent : m.kind = "write" /\ memory.status[m.txn] = "open"
         /\ LET answer == [kind |-> "enrolled", txn |-> m.txn, at |-> m.at] IN
            IsNews(answer) /\ Decide([memory EXCEPT !.enrolled[m.txn] = @ \cup {m.at}], {answer})
    /\ UNCHANGED faults

\* A transaction without participants ends with its decision.
\* coordinator/magnetar_coordinator/transactions/shard.py: end, expire
Decided(t, outcome, counts) ==
    LET isEmpty == memory.enrolled[t] = {} IN
    [memory EXCEPT !.outcome[t] = outcome, !.counts[t] = counts,
                   !.status[t] = IF outcome = "commit" THEN IF isEmpty THEN "committed" ELSE "committing"
                                 ELSE IF isEmpty THEN "aborted" ELSE "aborting"]

Known(t) == IF memory.status[t] = "lost" THEN "abort" ELSE memory.outcome[t]

\* Rule e: a repeated EndTxn succeeds only when it is the same. The answer to another one tells the outcome.
\* coordinator/magnetar_coordinator/transactions/shard.py: end
\* coordinator/magnetar_coordinator/transactions/decision.py: repeat_end, forgotten
End ==
    /\ \E m \in sent : m.kind = "end"
         /\ LET t == m.txn
                Answer(outcome) == [kind |-> "answer", txn |-> t, outcome |-> outcome]
                isForgotten == memory.status[t] = "forgotten"
            IN
            \/ /\ memory.status[t] = "open"
               /\ \A p \in Participants : m.counts[p] > 0 => p \in memory.enrolled[t]
               /\ Decide(Decided(t, m.action, m.counts), {Answer(m.action)})
            \/ /\ Known(t) # "none" /\ ~isForgotten /\ ~Has("only_first_end_is_answered")
               /\ LET answer == Answer(IF Has("repeated_end_not_compared") THEN m.action ELSE Known(t)) IN
                  IsNews(answer) /\ Decide(memory, {answer})
            \/ /\ isForgotten /\ Has("forgotten_end_succeeds")
               /\ IsNews(Answer(m.action)) /\ Decide(memory, {Answer(m.action)})
    /\ UNCHANGED faults

\* Invariant 7: only an open transaction expires.
\* coordinator/magnetar_coordinator/transactions/shard.py: expire
Expire(t) ==
    /\ Expiry /\ memory.status[t] \in {"open"} \cup (IF Has("committing_expires") THEN {"committing"} ELSE {})
    /\ ~(Has("silent_transactions_do_not_expire") /\ memory.enrolled[t] = {})
    /\ Decide(Decided(t, "abort", NoCounts), {})
    /\ UNCHANGED faults

OpenGroup == IF rows # Durable(memory) THEN <<[state |-> Durable(memory), answers |-> parked]>> ELSE <<>>

\* One group is written at a time. What is decided meanwhile is in the next one.
\* storage/magnetar_storage/group_commit.py: _seal
SealGroup ==
    /\ GroupCommits /\ sealed = <<>> /\ OpenGroup # <<>>
    /\ sealed' = OpenGroup /\ parked' = {}
    /\ UNCHANGED <<memory, rows, sent, faults>> /\ OnlyCoordinator

\* storage/magnetar_storage/group_commit.py: _commit
CommitGroup ==
    LET group == IF GroupCommits THEN sealed ELSE OpenGroup IN
    /\ group # <<>>
    /\ rows' = group[1].state /\ sealed' = <<>>
    /\ Say(Answered(group))
    /\ UNCHANGED <<memory, parked, faults>> /\ OnlyCoordinator

Covers(watermark, t) == t < watermark.mark /\ t \notin watermark.live

HasAnswered(p, t, outcome) == fate[p][t] = outcome \/ (Covers(participants[p], t) /\ participants[p].held[t] = 0)

\* Invariant 7: a transaction has ended when every participant has.
\* coordinator/magnetar_coordinator/ending/finisher.py: ended
\* coordinator/magnetar_coordinator/transactions/shard.py: participants_ended
Finish(t) ==
    /\ memory.status[t] \in {"committing", "aborting"} /\ rows.status[t] = memory.status[t]
    /\ LET asked == IF Has("one_answer_is_enough") THEN {CHOOSE p \in memory.enrolled[t] : TRUE} ELSE memory.enrolled[t]
       IN \A p \in asked : HasAnswered(p, t, memory.outcome[t])
    /\ Decide([memory EXCEPT !.status[t] = IF @ = "committing" THEN "committed" ELSE "aborted"], {})
    /\ UNCHANGED faults

\* coordinator/magnetar_coordinator/upkeep.py: OutcomeRetention
Forget(t) ==
    /\ Forgetting /\ rows.status[t] \in {"committed", "aborted"} /\ memory.status[t] = rows.status[t]
    /\ Decide([memory EXCEPT !.status[t] = "forgotten"], {})
    /\ UNCHANGED faults

\* Rule c: the watermark covers durably ended transactions only. The coordinator lists old transactions that
\* are live, and stays below a young one.
\* coordinator/magnetar_coordinator/transactions/watermark.py: ended_durably, advance
Announce ==
    /\ faults.announcements > 0
    /\ LET status == IF Has("watermark_covers_applied_ends") THEN memory.status ELSE rows.status
           live == {t \in Txns : t < memory.next /\ status[t] \notin Ended}
       IN \E mark \in {memory.next} \cup live :
            /\ mark >= memory.announced
            /\ Decide([memory EXCEPT !.announced = mark],
                      {[kind |-> "watermark", mark |-> mark,
                        live |-> IF Has("watermark_covers_open") THEN {} ELSE {t \in live : t < mark}]})
    /\ faults' = [faults EXCEPT !.announcements = @ - 1]

\* Invariant 8: TxnIDs that may have been told, and have no row, are lost. They are never issued again.
\* coordinator/magnetar_coordinator/metadata_store.py: _lost_transactions
CrashCoordinator ==
    /\ faults.crashes > 0
    /\ faults' = [faults EXCEPT !.crashes = @ - 1]
    /\ LET forgets == Has("restart_reuses_ids")
           status == [t \in Txns |-> IF rows.status[t] = "unknown" /\ t < rows.bound /\ ~forgets THEN "lost" ELSE rows.status[t]]
           next == IF forgets THEN Cardinality({t \in Txns : status[t] # "unknown"}) ELSE rows.bound
           state == [rows EXCEPT !.status = status, !.next = IF next > Transactions THEN Transactions ELSE next]
       IN memory' = state /\ rows' = state
    /\ parked' = {} /\ sealed' = <<>>
    /\ UNCHANGED sent /\ OnlyCoordinator

\* Rule f: the coordinator settles what a participant holds of a transaction that has ended without it.
\* broker/magnetar_broker/coordinators/orphan_resolver.py: OrphanResolver
\* coordinator/magnetar_coordinator/transactions/orphans.py: judge
IsOrphan(p, t) ==
    LET judgesOpen == Has("open_transactions_are_orphans") IN
    /\ [kind |-> "written", txn |-> t, at |-> p] \in sent
    /\ \/ rows.status[t] \in Ended /\ ~(rows.status[t] = "lost" /\ Has("lost_transactions_are_not_judged"))
       \/ rows.status[t] = "unknown" /\ judgesOpen
       \/ p \notin rows.enrolled[t] /\ (rows.status[t] \in {"committing", "aborting"} \/ judgesOpen)

\* The order of ends: the partitions first, since a subscription that has ended delivers later inputs.
\* coordinator/magnetar_coordinator/ending/finisher.py: finish, _in_order
IsToldToEnd(state, p, t) ==
    /\ state.outcome[t] # "none" /\ p \in state.enrolled[t]
    /\ ~(Has("aborts_end_with_the_process") /\ state.outcome[t] = "abort" /\ faults.crashes < Crashes)
    /\ ~(Has("commits_end_with_the_process") /\ state.outcome[t] = "commit" /\ faults.crashes < Crashes)
    /\ (p = Subscription /\ state.outcome[t] = "commit" /\ ~Has("subscription_ends_first")) =>
           \A q \in state.enrolled[t] \ {Subscription} : HasAnswered(q, t, "commit")

-----------------------------------------------------------------------------
(* Participants *)

OnlyParticipants == UNCHANGED <<memory, rows, parked, sealed, clients>>

\* Rule k: a transaction is settled when it has ended and all that it passes on is settled.
\* broker/magnetar_broker/transactions/order.py: is_unsettled, _pass_on
RECURSIVE IsUnsettled(_, _)
IsUnsettled(state, t) == state.held[t] > 0 \/ \E earlier \in state.follows[t] : IsUnsettled(state, earlier)

\* Invariant 9: an ended transaction accepts nothing. Rule d: acks get the checks that sends get.
\* Rule i: acks of another transaction are in the way. Rule k: the transaction notes what it follows.
\* broker/magnetar_broker/transactions/transaction_index.py: check_write, record_write
\* broker/magnetar_broker/topics/partition.py: send_in
\* broker/magnetar_broker/subscriptions/subscription.py: acknowledge_in
\* broker/magnetar_broker/transactions/order.py: to_follow
AcceptWrite ==
    /\ \E m \in sent : m.kind = "write"
         /\ LET p == m.at t == m.txn state == participants[p] IN
            /\ state.ended[t] = "no" \/ Has("late_writes_accepted")
            /\ ~Covers(state, t)
            /\ state.held[t] = 0
            /\ (p = Subscription /\ ~Has("acks_not_checked")) =>
                   state.log = <<>> /\ \A other \in Txns : state.held[other] = 0
            /\ participants' = [participants EXCEPT ![p].held[t] = 1,
                   ![p].follows[t] = IF Has("transactions_follow_nothing") THEN {}
                                     ELSE {f \in m.follows : IsUnsettled(state, f)} \ {t}]
            /\ Say({[kind |-> "written", txn |-> t, at |-> p]})
    /\ OnlyParticipants /\ UNCHANGED <<markRows, faults, fate>>

\* Rule k: parked until all that it follows is settled. Invariant 4: stored once. Invariant 5: no gap.
\* broker/magnetar_broker/transactions/producers.py: check
\* broker/magnetar_broker/commands/send_commands.py: SendCommands
AcceptPlainSend ==
    /\ \E m \in sent :
         /\ m.kind = "plain"
         /\ ~IsInLog(m.at, m.client, m.step)
         /\ \A earlier \in sent :
                (earlier.kind = "plain" /\ earlier.client = m.client /\ earlier.at = m.at /\ earlier.step < m.step) =>
                    IsInLog(m.at, m.client, earlier.step)
         /\ ~Has("parked_sends_wait_for_a_commit") \/ \A t \in m.follows : participants[m.at].ended[t] = "commit"
         /\ Has("plain_sends_not_parked") \/ \A t \in m.follows : ~IsUnsettled(participants[m.at], t)
         /\ participants' = [participants EXCEPT ![m.at].log =
                Append(@, [txn |-> NoTxn, client |-> m.client, step |-> m.step, kept |-> 1])]
    /\ OnlyParticipants /\ UNCHANGED <<markRows, sent, faults, fate>>

WriteOf(t) == CHOOSE m \in sent : m.kind = "write" /\ m.txn = t

\* Rule c: an end that the watermark covers changes nothing. Rule d: each end is recorded.
\* Rule g: less than was counted refuses the end, and the surplus is dropped. Rule k: the marker waits,
\* and an end passes on what the transaction followed.
\* broker/magnetar_broker/transactions/transaction_index.py: plan_end, record_end
\* broker/magnetar_broker/transactions/order.py: awaited, ended
\* broker/magnetar_broker/topics/partition.py: end
\* broker/magnetar_broker/subscriptions/subscription.py: end
EndAt(p, t, outcome, counts) ==
    LET state == participants[p]
        isFirst == state.ended[t] = "no"
        kept == IF outcome = "abort" THEN 0
                ELSE IF Has("counts_ignored") \/ Has("surplus_kept") THEN state.held[t]
                ELSE IF isFirst /\ counts[p] > state.held[t] THEN state.held[t] ELSE counts[p]
        isRecorded == ~(state.held[t] = 0 /\ Has("empty_end_not_recorded"))
                      /\ ~(p = Subscription /\ Has("subscription_records_no_end"))
    IN
    /\ isFirst \/ (Has("marker_written_twice") /\ outcome = "commit" /\ Len(state.log) < 3)
    /\ ~(isFirst /\ state.held[t] = 0 /\ Covers(state, t))
    /\ (isFirst /\ outcome = "commit" /\ ~Has("counts_ignored")) => state.held[t] >= counts[p]
    /\ ~(Has("missing_subscription_is_silent") /\ p = Subscription /\ state.held[t] = 0)
    /\ (kept > 0 /\ Has("marker_waits_for_a_commit")) => \A f \in state.follows[t] : state.ended[f] = "commit"
    /\ (kept > 0 /\ ~Has("marker_does_not_wait")) => \A f \in state.follows[t] : ~IsUnsettled(state, f)
    /\ participants' = [participants EXCEPT
           ![p].held[t] = 0,
           ![p].ended[t] = IF isRecorded THEN outcome ELSE @,
           ![p].log = IF kept = 0 THEN @
                      ELSE Append(@, [txn |-> t, client |-> WriteOf(t).client, step |-> WriteOf(t).step, kept |-> kept]),
           ![p].follows[t] = IF Has("abort_passes_nothing_on") THEN {} ELSE {f \in @ : IsUnsettled(state, f)}]
    /\ fate' = [fate EXCEPT ![p][t] = outcome]
    /\ OnlyParticipants /\ UNCHANGED <<markRows, sent, faults>>

\* Rule a: the coordinator tells participants of durable decisions only.
\* coordinator/magnetar_coordinator/ending/end_commands.py: end_command
EndAtParticipant(p, t) ==
    \/ IsToldToEnd(rows, p, t) /\ EndAt(p, t, rows.outcome[t], rows.counts[t])
    \/ Has("participants_told_early") /\ IsToldToEnd(memory, p, t) /\ EndAt(p, t, memory.outcome[t], memory.counts[t])
    \/ IsOrphan(p, t) /\ EndAt(p, t, "abort", NoCounts)

\* Rule c: a transaction that was covered stays covered. The watermark is stored in one batch with the
\* deletion of the ends that it covers. An end that still passes others on stays (rule k).
\* broker/magnetar_broker/transactions/watermark.py: advanced
\* broker/magnetar_broker/topics/partition.py: forget_covered
HearWatermark(p) ==
    /\ \E m \in sent : m.kind = "watermark" /\ m.mark >= participants[p].mark
         /\ LET state == participants[p]
                live == {t \in m.live : t >= state.mark \/ t \in state.live}
                news == [state EXCEPT !.mark = m.mark, !.live = IF Has("watermark_takes_back") THEN m.live ELSE live]
                PassesOn(t) == \E f \in news.follows[t] : IsUnsettled(news, f)
            IN /\ participants' = [participants EXCEPT ![p] = [news EXCEPT !.ended =
                      [t \in Txns |-> IF Covers(news, t) /\ ~PassesOn(t) THEN "no" ELSE news.ended[t]]]]
               /\ markRows' = IF Has("watermark_not_stored") THEN markRows
                              ELSE [markRows EXCEPT ![p] = [mark |-> news.mark, live |-> news.live]]
    /\ participants' # participants
    /\ OnlyParticipants /\ UNCHANGED <<sent, faults, fate>>

\* All else that a participant has is durable, so a crash changes nothing else.
\* broker/magnetar_broker/recovery.py: Recovery
CrashParticipant(p) ==
    /\ faults.crashes > 0 /\ participants[p].mark # markRows[p].mark
    /\ faults' = [faults EXCEPT !.crashes = @ - 1]
    /\ participants' = [participants EXCEPT ![p].mark = markRows[p].mark, ![p].live = markRows[p].live]
    /\ OnlyParticipants /\ UNCHANGED <<markRows, sent, fate>>

\* A disaster, for rule g: what an open transaction had written is gone.
Lose(p, t) ==
    /\ faults.losses > 0 /\ participants[p].held[t] > 0
    /\ faults' = [faults EXCEPT !.losses = @ - 1]
    /\ participants' = [participants EXCEPT ![p].held[t] = 0]
    /\ OnlyParticipants /\ UNCHANGED <<markRows, sent, fate>>

-----------------------------------------------------------------------------
Next ==
    \/ \E c \in Clients :
           \/ AskForTransaction(c) \/ Write(c) \/ AskToEnd(c, "commit") \/ AskToEnd(c, "abort")
           \/ AskToAbortAsWell(c) \/ HearOutcome(c) \/ GoOnWithoutAnswer(c)
           \/ \E p \in Partitions : SendPlainly(c, p)
    \/ Reserve \/ Begin \/ Enroll \/ End \/ SealGroup \/ CommitGroup \/ Announce \/ CrashCoordinator
    \/ \E t \in Txns : Expire(t) \/ Finish(t) \/ Forget(t)
    \/ AcceptWrite \/ AcceptPlainSend
    \/ \E p \in Participants :
           \/ HearWatermark(p) \/ CrashParticipant(p)
           \/ \E t \in Txns : EndAtParticipant(p, t) \/ Lose(p, t)

Spec == Init /\ [][Next]_vars

(*
  What goes on: clients may stop at any time, and crashes and losses need not happen. Each line is weakly
  fair: what stays possible is done at last. Nothing needs more, since what is possible here stays so until
  it is done, or until another step has made it needless.
*)
Fairness ==
    \* A client repeats its requests until they are answered, and messages arrive at last.
    \* client/magnetar/link/unanswered.py: Unanswered
    /\ WF_vars(Begin) /\ WF_vars(Enroll) /\ WF_vars(End) /\ WF_vars(AcceptPlainSend)
    \* storage/magnetar_storage/group_commit.py: GroupCommit
    /\ WF_vars(SealGroup) /\ WF_vars(CommitGroup)
    \* A periodic task.
    \* coordinator/magnetar_coordinator/upkeep.py: expire
    \* coordinator/magnetar_coordinator/coordinator.py: Periodic
    /\ \A t \in Txns : WF_vars(Expire(t))
    \* After each answer of a participant.
    \* coordinator/magnetar_coordinator/ending/finisher.py: ended
    /\ \A t \in Txns : WF_vars(Finish(t))
    \* Commands are repeated until they are answered, and after a restart from the beginning. Orphans are
    \* asked about with each watermark.
    \* coordinator/magnetar_coordinator/ending/end_command_sender.py: send_again, link_is_up, _sweep
    \* coordinator/magnetar_coordinator/upkeep.py: resume
    \* coordinator/magnetar_coordinator/ending/brokers.py: advance_watermark, _judge_all
    /\ Has("ends_are_sent_once") \/ \A p \in Participants, t \in Txns : WF_vars(EndAtParticipant(p, t))

LiveSpec == Spec /\ Fairness
Symmetry == Permutations(Partitions) \cup Permutations(Clients)

-----------------------------------------------------------------------------
(* The invariants. A decision outlives its row, so `rows.outcome` stays when an outcome is forgotten. *)

IsDecided(outcome, t) == rows.outcome[t] = outcome
EntriesOf(p, t) == {i \in DOMAIN participants[p].log : participants[p].log[i].txn = t}
Answers == {m \in sent : m.kind = "answer"}

\* Invariant 1. What is visible is what was counted. All of it is visible wherever the transaction has ended.
AllOrNothing == \A t \in Txns, p \in Participants :
    /\ \A i \in EntriesOf(p, t) : participants[p].log[i].kept = rows.counts[t][p]
    /\ (/\ IsDecided("commit", t) /\ rows.counts[t][p] > 0
        /\ rows.status[t] \in Ended \/ fate[p][t] # "no" \/ Covers(participants[p], t)) => EntriesOf(p, t) # {}

\* Invariant 2. An answer tells what is durable, and a confirmed write stays until its transaction ends.
Durability ==
    /\ \A m \in Answers : IsDecided(m.outcome, m.txn) \/ rows.status[m.txn] = "lost"
    /\ \A m \in sent : m.kind = "enrolled" => m.at \in rows.enrolled[m.txn]
    /\ Losses = 0 => \A m \in sent : (m.kind = "written" /\ fate[m.at][m.txn] = "no") => participants[m.at].held[m.txn] > 0

\* Invariant 3.
CommittedOnly == \A p \in Participants : \A i \in DOMAIN participants[p].log :
    LET t == participants[p].log[i].txn IN t # NoTxn => IsDecided("commit", t)

\* Invariant 4. The input of the subscription counts in one transaction.
Once ==
    /\ \A p \in Participants : \A i, j \in DOMAIN participants[p].log :
           (participants[p].log[i].client = participants[p].log[j].client
            /\ participants[p].log[i].step = participants[p].log[j].step) => i = j
    /\ Len(participants[Subscription].log) <= 1

\* Invariant 5. A client numbers its steps.
InOrder == \A p \in Partitions : \A i, j \in DOMAIN participants[p].log :
    (i < j /\ participants[p].log[i].client = participants[p].log[j].client) =>
        participants[p].log[i].step <= participants[p].log[j].step

\* Invariant 6. When an input is done, its outputs are visible.
InputsWithOutputs == \A i \in DOMAIN participants[Subscription].log :
    LET t == participants[Subscription].log[i].txn IN
    \A p \in Partitions : rows.counts[t][p] > 0 => EntriesOf(p, t) # {}

\* Invariant 7.
SingleDecision ==
    /\ \A m, n \in Answers : m.txn = n.txn => m.outcome = n.outcome
    /\ \A p \in Participants, t \in Txns : fate[p][t] = "commit" => IsDecided("commit", t)
    /\ \A t \in Txns : IsDecided("commit", t) => \A p \in rows.enrolled[t] : fate[p][t] # "abort"

\* Invariant 8.
Unique == \A m, n \in sent : (m.kind = "begun" /\ n.kind = "begun" /\ m.txn = n.txn) => m = n

\* Invariant 9.
Closed == \A p \in Participants, t \in Txns : fate[p][t] # "no" => participants[p].held[t] = 0

\* Invariant 10. A transaction waits only for earlier ones of its own producer.
NoWaiting == \A p \in Participants, t \in Txns : \A f \in participants[p].follows[t] :
    WriteOf(f).client = WriteOf(t).client /\ WriteOf(f).step < WriteOf(t).step

\* Rule c.
CoversEnded == \A p \in Participants, t \in Txns : Covers(participants[p], t) => rows.status[t] \in Ended

-----------------------------------------------------------------------------
(* Progress: promises of docs/protocol/rules.md. They hold when transactions expire and nothing is lost. *)

\* Promise A.
DecidedEnd == \A t \in Txns : (memory.status[t] \in {"committing", "aborting"}) ~> (rows.status[t] \in Ended)

\* Promise B.
OpenEnd == \A t \in Txns : (memory.status[t] = "open") ~> (rows.status[t] \in Ended)

\* Promise C. Markers and acks do not wait for ever, and neither does what a client sent before it died.
PartsEnd == \A p \in Participants, t \in Txns : (participants[p].held[t] > 0) ~> (participants[p].held[t] = 0)
PlainSendsAreStored == \A c \in Clients, p \in Partitions, step \in 1 .. Steps :
    (\E m \in sent : m.kind = "plain" /\ m.client = c /\ m.at = p /\ m.step = step) ~> IsInLog(p, c, step)

\* Promise D. The answer to an end of a forgotten transaction is that it is not known.
EndsAreAnswered == \A t \in Txns :
    (\E m \in sent : m.kind = "end" /\ m.txn = t)
        ~> (rows.status[t] = "forgotten" \/ \E m \in Answers : m.txn = t)

-----------------------------------------------------------------------------
(* Situations that have to arise. Each formula says that one never does, and TLC has to refute it. *)

NeverWhole == ~\E t \in Txns : rows.status[t] = "committed" /\ \A p \in Participants : EntriesOf(p, t) # {}
NeverLost == \A t \in Txns : rows.status[t] # "lost"
NeverWaits == \A p \in Partitions, t \in Txns : participants[p].follows[t] = {}
NeverSurplus == ~\E p \in Partitions, t \in Txns : rows.status[t] = "committing" /\ participants[p].held[t] > rows.counts[t][p]
NeverForgetsEnds == ~\E p \in Participants, t \in Txns : fate[p][t] = "commit" /\ participants[p].ended[t] = "no"
NeverLostAndHeld == ~\E p \in Participants, t \in Txns : rows.status[t] = "lost" /\ participants[p].held[t] > 0
NeverOrphaned == ~\E p \in Participants, t \in Txns : fate[p][t] = "abort" /\ p \notin rows.enrolled[t]

\* Narrows a search: every transaction writes, and the second one alone aborts.
OnlySecondAborts ==
    /\ \A m \in sent : m.kind = "end" => m.action = "commit"
    /\ \A t \in Txns : memory.outcome[t] = "abort" => t = 1
    /\ \A c \in Clients : clients[c].phase \in {"open", "ending"} => clients[c].wrote # {}
=============================================================================
