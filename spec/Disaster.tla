------------------------------ MODULE Disaster ------------------------------
(*
  A coordinator goes on with an older copy of its store: what remains true, and why (rule n).

  The copy is a backup, or what is left after an accepted loss. The coordinator takes a new incarnation, and
  asks participants how the transactions ended that are open in the copy. What it did since the copy
  is gone: a commit that nobody has carried out is aborted, even if it was answered. So durability
  does not survive (invariant 2). What does: a transaction is not torn between the participants that the
  copy knows, and no TxnID is issued twice.

  The former process may go on: it was cut off, and not stopped. It decides, and sends ends, until each
  broker has heard of the new incarnation.

  What a step changes is durable with the step. `Mistake` names what is planted, or is "none".
*)
EXTENDS Naturals, FiniteSets, Sequences, TLC

CONSTANTS
    Participants,  \* each at a broker of its own
    Transactions,  \* how many there are; the first is 0
    Restores,
    Mistake

VARIABLES
    coordinator,
    copy,          \* a coordinator of some moment
    participants,
    ids,           \* the TxnID of each transaction: incarnation and counter
    highest,       \* the newest incarnation, which the first broker has stored
    former,        \* the coordinators that were replaced, by incarnation: their processes may go on
    restores
vars == <<coordinator, copy, participants, ids, highest, former, restores>>

Has(mistake) == Mistake = mistake
Txns == 0 .. Transactions - 1
Begun == DOMAIN ids
Decided == {"commit", "abort"}

Init ==
    /\ coordinator = [incarnation |-> 1, next |-> 0, phase |-> "serving",
                      status |-> [t \in Txns |-> "unknown"],
                      enrolled |-> [t \in Txns |-> {}],
                      asked |-> {},                        \* the participants that have answered
                      found |-> [t \in Txns |-> "none"]]   \* what they have said
    /\ copy = coordinator
    \* What is forgotten, the protocol does not read: `ended` has it for the invariants.
    /\ participants = [p \in Participants |->
           [incarnation |-> 1, held |-> [t \in Txns |-> FALSE], ended |-> [t \in Txns |-> "no"],
            covered |-> [t \in Txns |-> FALSE], forgotten |-> [t \in Txns |-> FALSE]]]
    /\ ids = <<>>
    /\ highest = 1 /\ former = <<>> /\ restores = Restores

IsServing == coordinator.phase = "serving"
OnlyCoordinator == UNCHANGED <<copy, participants, highest, former, restores>>

-----------------------------------------------------------------------------
(* Transactions *)

\* Invariant 8: the incarnation is part of the TxnID.
\* coordinator/magnetar_coordinator/transactions/shard.py: new_txn
Begin ==
    LET t == Cardinality(Begun) IN
    /\ IsServing /\ t < Transactions
    /\ ids' = [u \in 0 .. t |-> IF u < t THEN ids[u] ELSE <<coordinator.incarnation, coordinator.next>>]
    /\ coordinator' = [coordinator EXCEPT !.next = @ + 1, !.status[t] = "open"]
    /\ OnlyCoordinator

\* coordinator/magnetar_coordinator/transactions/shard.py: add_participants
Enroll(t, p) ==
    /\ IsServing /\ coordinator.status[t] = "open"
    /\ coordinator' = [coordinator EXCEPT !.enrolled[t] = @ \cup {p}]
    /\ UNCHANGED ids /\ OnlyCoordinator

\* A participant refuses TxnIDs of earlier incarnations.
\* broker/magnetar_broker/transactions/watermark.py: is_superseded
Write(t, p) ==
    /\ participants[p].ended[t] = "no" /\ ~participants[p].covered[t]
    /\ ids[t][1] >= participants[p].incarnation
    /\ participants' = [participants EXCEPT ![p].held[t] = TRUE]
    /\ UNCHANGED <<coordinator, copy, ids, highest, former, restores>>

\* A client commits when all that it wrote is confirmed. The counts name participants that are enrolled.
\* coordinator/magnetar_coordinator/transactions/shard.py: end
Commit(t) ==
    LET wrote == {p \in Participants : participants[p].held[t]} IN
    /\ IsServing /\ coordinator.status[t] = "open" /\ wrote # {}
    /\ wrote \subseteq coordinator.enrolled[t]
    /\ coordinator' = [coordinator EXCEPT !.status[t] = "commit"]
    /\ UNCHANGED ids /\ OnlyCoordinator

\* coordinator/magnetar_coordinator/upkeep.py: expire
Expire(t) ==
    /\ IsServing /\ coordinator.status[t] = "open"
    /\ coordinator' = [coordinator EXCEPT !.status[t] = "abort"]
    /\ UNCHANGED ids /\ OnlyCoordinator

\* A participant that has ended the transaction, or whose watermark covers it, changes nothing.
\* broker/magnetar_broker/transactions/transaction_index.py: plan_end
End(p, t, outcome) ==
    /\ participants[p].ended[t] = "no" /\ (participants[p].held[t] \/ ~participants[p].covered[t])
    /\ participants' = [participants EXCEPT ![p].ended[t] = outcome, ![p].held[t] = FALSE]
    /\ UNCHANGED <<coordinator, copy, ids, highest, former, restores>>

\* Ends are accepted for TxnIDs of all incarnations, and from the newest one that is known.
\* coordinator/magnetar_coordinator/ending/finisher.py
\* broker/magnetar_broker/coordinators/transaction_commands.py: _check_end
EndFrom(one, t, p) ==
    /\ one.status[t] \in Decided /\ p \in one.enrolled[t]
    /\ one.incarnation >= participants[p].incarnation \/ Has("former_ends_accepted")
    /\ End(p, t, one.status[t])
EndParticipant(t, p) == IsServing /\ EndFrom(coordinator, t, p)

\* Rule f: a participant asks about what it holds, and the coordinator does not know it.
\* coordinator/magnetar_coordinator/transactions/orphans.py
EndOrphan(t, p) ==
    /\ IsServing /\ participants[p].held[t]
    /\ coordinator.status[t] = "unknown" \/ (coordinator.status[t] \in Decided /\ p \notin coordinator.enrolled[t])
    /\ End(p, t, "abort")

\* Rule c: a watermark covers the transactions of its incarnation that have ended everywhere. The
\* participant forgets how.
\* broker/magnetar_broker/coordinators/transaction_commands.py: _low_watermark
Cover(t, p) ==
    /\ IsServing /\ coordinator.status[t] \in Decided
    /\ ids[t][1] = coordinator.incarnation /\ participants[p].incarnation = coordinator.incarnation
    /\ \A q \in coordinator.enrolled[t] : participants[q].ended[t] # "no"
    /\ ~participants[p].covered[t]
    /\ participants' = [participants EXCEPT ![p].covered[t] = TRUE, ![p].forgotten[t] = TRUE]
    /\ UNCHANGED <<coordinator, copy, ids, highest, former, restores>>

-----------------------------------------------------------------------------
(* Former processes *)

\* A client of it commits, and is answered.
FormerCommits(i, t) ==
    LET wrote == {p \in Participants : participants[p].held[t]} IN
    /\ former[i].status[t] = "open" /\ wrote # {} /\ wrote \subseteq former[i].enrolled[t]
    /\ former' = [former EXCEPT ![i].status[t] = "commit"]
    /\ UNCHANGED <<coordinator, copy, participants, ids, highest, restores>>

FormerEnds(i, t, p) == EndFrom(former[i], t, p)

-----------------------------------------------------------------------------
(* Losses *)

\* cli/magnetar_cli/backup/making.py
TakeCopy ==
    /\ IsServing /\ restores > 0 /\ copy' = coordinator
    /\ UNCHANGED <<coordinator, participants, ids, highest, former, restores>>

\* The first broker stores each incarnation before a coordinator uses it.
\* broker/magnetar_broker/coordinators/incarnations.py
Restore ==
    LET incarnation == IF Has("incarnation_stays") THEN copy.incarnation ELSE highest + 1 IN
    /\ restores > 0 /\ restores' = restores - 1
    /\ highest' = incarnation
    /\ coordinator' = [copy EXCEPT !.incarnation = incarnation, !.asked = {},
           !.phase = IF Has("serves_before_asking") THEN "serving" ELSE "asking"]
    \* A coordinator that has not served yet, and is restored again, has decided nothing.
    /\ former' = IF IsServing THEN Append(former, coordinator) ELSE former
    /\ UNCHANGED <<copy, participants, ids>>

\* The former incarnation's watermark is kept: what it covers has ended for ever.
\* broker/magnetar_broker/transactions/watermark.py: keep_former
Heard(p, incarnation) == [participants EXCEPT
    ![p].incarnation = incarnation,
    ![p].covered = IF Has("former_coverage_dropped") /\ participants[p].incarnation # incarnation
                   THEN [t \in Txns |-> FALSE] ELSE @]

\* Whoever has aborted may have taken no part: an end that is known to be whole counts more.
Weight == [none |-> 0, abort |-> 1, forgotten |-> 2, commit |-> 3]

\* DescribeEnds, from the newest store only.
\* coordinator/magnetar_coordinator/ending/past_ends.py: past_ends
\* broker/magnetar_broker/coordinators/transaction_commands.py: _describe_ends
Ask(p) ==
    LET one == participants[p]
        said(t) == IF ~one.covered[t] THEN IF one.forgotten[t] THEN "no" ELSE one.ended[t]
                   ELSE IF Has("forgotten_not_told") THEN "no"
                   ELSE IF Has("forgotten_told_as_abort") THEN "abort" ELSE "forgotten"
        known(t) == coordinator.found[t]
    IN
    /\ coordinator.phase = "asking" /\ p \notin coordinator.asked
    /\ one.incarnation <= coordinator.incarnation
    /\ participants' = IF Has("asking_does_not_fence") THEN participants
                       ELSE Heard(p, coordinator.incarnation)
    /\ coordinator' = [coordinator EXCEPT !.asked = @ \cup {p}, !.found = [t \in Txns |->
           IF said(t) = "no" THEN known(t)
           ELSE IF Has("last_answer_counts") THEN said(t)
           ELSE IF Has("abort_counts_over_forgotten") /\ known(t) = "forgotten" THEN said(t)
           ELSE IF Weight[said(t)] > Weight[known(t)] THEN said(t) ELSE known(t)]]
    /\ UNCHANGED <<copy, ids, highest, former, restores>>

\* It asks only if it holds a transaction as open. What has ended, nobody knows how, is closed as that.
\* coordinator/magnetar_coordinator/coordinator.py: _ask_past_ends
Serve ==
    /\ coordinator.phase = "asking"
    /\ \/ coordinator.asked = Participants
       \/ \A t \in Txns : coordinator.status[t] # "open"
       \/ Has("one_broker_is_enough") /\ coordinator.asked # {}
    /\ coordinator' = [coordinator EXCEPT !.phase = "serving", !.status = [t \in Txns |->
           IF @[t] = "open" /\ coordinator.found[t] # "none" THEN coordinator.found[t] ELSE @[t]]]
    /\ UNCHANGED ids /\ OnlyCoordinator

\* A participant hears of the new incarnation, at some time.
\* broker/magnetar_broker/coordinators/transaction_commands.py: _low_watermark
HearIncarnation(p) ==
    /\ IsServing /\ participants[p].incarnation < coordinator.incarnation
    /\ participants' = Heard(p, coordinator.incarnation)
    /\ UNCHANGED <<coordinator, copy, ids, highest, former, restores>>

-----------------------------------------------------------------------------

Next ==
    \/ Begin \/ TakeCopy \/ Restore \/ Serve
    \/ \E t \in Begun : Commit(t) \/ Expire(t)
    \/ \E t \in Begun, p \in Participants :
          Enroll(t, p) \/ Write(t, p) \/ EndParticipant(t, p) \/ EndOrphan(t, p) \/ Cover(t, p)
    \/ \E i \in DOMAIN former, t \in Begun :
          FormerCommits(i, t) \/ \E p \in Participants : FormerEnds(i, t, p)
    \/ \E p \in Participants : Ask(p) \/ HearIncarnation(p)

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Participants)

-----------------------------------------------------------------------------
(* Invariants *)

\* Invariants 1 and 7, between the participants that the coordinator knows.
NotTorn == \A t \in Begun : \A p, q \in coordinator.enrolled[t] :
    ~(participants[p].ended[t] = "commit" /\ participants[q].ended[t] = "abort")

\* Invariant 7: while it serves, its decision is that of its participants.
DecisionsAgree == IsServing => \A t \in Begun : \A p \in coordinator.enrolled[t] :
    (coordinator.status[t] \in Decided /\ participants[p].ended[t] = "commit") => coordinator.status[t] = "commit"

\* Invariant 8.
Unique == \A t, u \in Begun : t # u => ids[t] # ids[u]

\* Situations that have to arise.
NeverLearns == ~(\E t \in Begun : IsServing /\ coordinator.found[t] = "commit" /\ copy.status[t] = "open")
\* What the copy does not know may be torn: a participant that was enrolled later.
NeverTorn == \A t \in Begun : \A p, q \in Participants :
    ~(participants[p].ended[t] = "commit" /\ participants[q].ended[t] = "abort")
NeverCloses == ~(\E t \in Begun : IsServing /\ coordinator.status[t] = "forgotten")
NeverForgets == ~(\E t \in Begun : coordinator.status[t] = "unknown" /\ \E p \in Participants : participants[p].ended[t] = "commit")
=============================================================================
