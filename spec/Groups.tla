------------------------------- MODULE Groups -------------------------------
(*
  A group shares a partition: who owns it, whose acks count, and when the next owner reads (rule p).

  The promises are those of docs/design/0003-groups.md. Above each action stands the code that it stands
  for. A member takes each input in a transaction of its own, and writes one output in it. It may have two
  open at a time. Transactions of one producer end in order (rule k, spec/Commit.tla).

  `sent` only grows: joins, releases and acks may be late and doubled. A member that was expelled does
  not know it, and goes on. What a step changes is durable with the step.

  `Mistake` names what is planted, or is "none". tests/spec/runs/groups.py says what finds it.
*)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Members,
    Inputs,          \* how many there are; the first is 1
    Transactions,    \* how many there are; the first is 0
    JoinsMax,        \* how often a member may join
    GenerationsMax,
    ExpulsionsMax,
    Mistake

VARIABLES
    group,           \* at the broker: members, target, owner
    members,         \* what each member knows
    cursor,          \* of the partition
    txns,            \* the transactions that have begun
    outputs,         \* the inputs whose outputs are visible, in order
    sent,
    owners,          \* each ownership that there was; nothing in the protocol reads this
    wrong            \* acks that counted and were not the owner's, and members who came back; nor this
vars == <<group, members, cursor, txns, outputs, sent, owners, wrong>>

Nobody == "nobody"
Has(mistake) == Mistake = mistake
Say(messages) == sent' = sent \cup messages
Range(seq) == {seq[i] : i \in DOMAIN seq}
Txns == DOMAIN txns

Init ==
    /\ group = [generation |-> 0, in |-> {}, epochs |-> [m \in Members |-> 0], target |-> Nobody,
                owner |-> Nobody, since |-> 0, expulsions |-> 0]
    /\ members = [m \in Members |->
           [epoch |-> 0, holds |-> 0, attached |-> FALSE, given |-> <<>>, open |-> <<>>, aborted |-> {}]]
    /\ cursor = [acked |-> {}, pending |-> {}, ended |-> {}, consumer |-> Nobody, given |-> {}, waits |-> {}]
    /\ txns = <<>> /\ outputs = <<>> /\ sent = {} /\ owners = {} /\ wrong = {}

-----------------------------------------------------------------------------
(* Members and owners *)

OnlyGroup == UNCHANGED <<cursor, txns, outputs>>

\* Each change of members raises the generation, and makes a target.
\* broker/magnetar_broker/assignment/group.py: _assign
WithMembers(in, epochs, target) ==
    [group EXCEPT !.in = in, !.epochs = epochs, !.generation = IF Has("generation_stays") THEN @ ELSE @ + 1, !.target = target,
                  !.owner = IF @ \in in THEN @ ELSE Nobody]
Targets(in) == IF in = {} THEN {Nobody} ELSE in
MayChange == group.generation < GenerationsMax

\* client/magnetar/groups/membership.py
Join(m) ==
    /\ members[m].epoch < JoinsMax
    /\ members' = [members EXCEPT ![m].epoch = @ + 1]
    /\ Say({[kind |-> "join", member |-> m, epoch |-> members[m].epoch + 1]})
    /\ UNCHANGED <<group, owners>> /\ UNCHANGED wrong /\ OnlyGroup

\* A late copy does not bring a member back.
\* broker/magnetar_broker/assignment/group.py: refuse_late_join
TakeJoin(m) ==
    /\ m \notin group.in /\ MayChange
    /\ \E message \in sent : message.kind = "join" /\ message.member = m
         /\ (message.epoch > group.epochs[m] \/ Has("late_joins_accepted"))
         /\ \E target \in group.in \cup {m} :
              group' = WithMembers(group.in \cup {m}, [group.epochs EXCEPT ![m] = message.epoch], target)
         /\ wrong' = IF message.epoch > group.epochs[m] THEN wrong ELSE wrong \cup {<<"return", m>>}
    /\ UNCHANGED <<members, sent, owners>> /\ OnlyGroup

\* The member leaves, or is silent for too long. It may know nothing of it.
\* broker/magnetar_broker/assignment/group.py: leave, expel
Expel(m) ==
    /\ m \in group.in /\ MayChange /\ group.expulsions < ExpulsionsMax
    /\ \E target \in Targets(group.in \ {m}) :
         group' = [WithMembers(group.in \ {m}, group.epochs, target) EXCEPT !.expulsions = @ + 1]
    /\ UNCHANGED <<members, sent, owners>> /\ UNCHANGED wrong /\ OnlyGroup

\* Promise 1: a partition is given away once in a generation, at most.
\* broker/magnetar_broker/assignment/group.py: _reconcile
Give ==
    /\ group.owner = Nobody /\ group.target # Nobody
    /\ (group.since < group.generation \/ Has("generation_stays"))
    /\ group' = [group EXCEPT !.owner = group.target, !.since = group.generation]
    /\ owners' = owners \cup {<<group.generation, group.target>>}
    /\ Say({[kind |-> "assigned", member |-> group.target, since |-> group.generation]})
    /\ UNCHANGED members /\ UNCHANGED wrong /\ OnlyGroup

\* A member that has lost the partition meanwhile drops all that it has of it.
\* client/magnetar/groups/holding.py
HearAssigned(m) ==
    /\ \E message \in sent : message.kind = "assigned" /\ message.member = m /\ message.since > members[m].holds
         /\ members' = [members EXCEPT ![m].holds = message.since, ![m].attached = FALSE, ![m].given = <<>>,
                                       ![m].open = <<>>, ![m].aborted = {}]
    /\ UNCHANGED <<group, sent, owners>> /\ UNCHANGED wrong /\ OnlyGroup

\* When another member is the target, the owner settles what it was given, and gives the partition up.
\* client/magnetar/groups/membership.py
Release(m) ==
    /\ members[m].holds > 0 /\ members[m].holds = group.since /\ group.owner = m /\ group.target # m
    /\ members[m].open = <<>> /\ members[m].given = <<>>
    /\ members' = [members EXCEPT ![m].attached = FALSE]
    /\ Say({[kind |-> "release", member |-> m, since |-> members[m].holds]})
    /\ UNCHANGED <<group, owners>> /\ UNCHANGED wrong /\ OnlyGroup

\* A partition that the target gives back to its owner stays with it.
\* broker/magnetar_broker/assignment/group.py: heartbeat
TakeRelease(m) ==
    /\ group.owner = m /\ group.target # m
    /\ [kind |-> "release", member |-> m, since |-> group.since] \in sent
    /\ group' = [group EXCEPT !.owner = Nobody]
    /\ UNCHANGED <<members, sent, owners>> /\ UNCHANGED wrong /\ OnlyGroup

-----------------------------------------------------------------------------
(* Inputs *)

OnlyInputs == UNCHANGED <<group, owners>>

\* Promise 2.
\* broker/magnetar_broker/assignment/group.py: check_partition_owner
IsOwner(m, since) == group.owner = m /\ since >= group.since

\* A consumer that attaches names what it has aborted. The partition goes on waiting for what an earlier
\* consumer has named.
\* broker/magnetar_broker/subscriptions/subscription.py
\* client/magnetar/groups/assigned_receivers.py
Attach(m) ==
    /\ members[m].holds > 0 /\ ~members[m].attached /\ IsOwner(m, members[m].holds)
    /\ members' = [members EXCEPT ![m].attached = TRUE, ![m].given = <<>>, ![m].aborted = {}]
    /\ cursor' = [cursor EXCEPT !.consumer = m, !.given = {},
           !.waits = members[m].aborted \cup (IF Has("next_consumer_does_not_wait") THEN {} ELSE @)]
    /\ UNCHANGED <<txns, outputs, sent, wrong>> /\ OnlyInputs

\* Promise 3: the owner waits for transactions of earlier generations, and for those that were named.
\* broker/magnetar_broker/subscriptions/group_ownership.py: awaited
IsWaiting ==
    \/ \E t \in cursor.pending : txns[t].since < group.since /\ ~Has("earlier_owners_not_awaited")
    \/ cursor.waits \cap cursor.pending # {}

SettledOrHeld == cursor.acked \cup {txns[t].input : t \in cursor.pending} \cup cursor.given

\* broker/magnetar_broker/subscriptions/delivery.py
Deliver(m) ==
    LET next == {i \in 1 .. Inputs : i \notin SettledOrHeld} IN
    /\ cursor.consumer = m /\ group.owner = m /\ members[m].attached /\ members[m].holds = group.since
    /\ ~IsWaiting /\ next # {}
    /\ LET input == CHOOSE i \in next : \A j \in next : i <= j IN
         /\ cursor' = [cursor EXCEPT !.given = @ \cup {input}]
         /\ members' = [members EXCEPT ![m].given = Append(@, input)]
    /\ UNCHANGED <<txns, outputs, sent, wrong>> /\ OnlyInputs

\* Its output is part of the transaction.
Process(m) ==
    LET t == Cardinality(Txns) IN
    /\ members[m].given # <<>> /\ Len(members[m].open) < 2 /\ t < Transactions
    /\ txns' = [u \in 0 .. t |-> IF u < t THEN txns[u] ELSE
           [status |-> "open", member |-> m, since |-> members[m].holds, input |-> Head(members[m].given)]]
    /\ members' = [members EXCEPT ![m].given = Tail(@), ![m].open = Append(@, t)]
    /\ Say({[kind |-> "ack", txn |-> t]})
    /\ UNCHANGED <<cursor, outputs, wrong>> /\ OnlyInputs

\* broker/magnetar_broker/subscriptions/group_ownership.py: check
TakeAck(t) ==
    LET isOwners == IsOwner(txns[t].member, txns[t].since) IN
    /\ [kind |-> "ack", txn |-> t] \in sent /\ t \notin cursor.ended \cup cursor.pending
    /\ \/ isOwners
       \/ Has("owner_not_checked")
       \/ Has("generation_not_checked") /\ group.owner = txns[t].member
    /\ txns[t].input \notin cursor.acked \cup {txns[u].input : u \in cursor.pending}
    /\ cursor' = [cursor EXCEPT !.pending = @ \cup {t}]
    /\ Say({[kind |-> "acked", txn |-> t]})
    /\ wrong' = IF isOwners THEN wrong ELSE wrong \cup {<<"ack", t>>}
    /\ UNCHANGED <<members, txns, outputs>> /\ OnlyInputs

\* A commit waits until its ack is confirmed. The coordinator knows nothing of groups.
Commit(m) ==
    LET t == Head(members[m].open) IN
    /\ members[m].open # <<>> /\ [kind |-> "acked", txn |-> t] \in sent /\ txns[t].status = "open"
    /\ txns' = [txns EXCEPT ![t].status = "committing"]
    /\ members' = [members EXCEPT ![m].open = Tail(@)]
    /\ UNCHANGED <<cursor, outputs, sent, wrong>> /\ OnlyInputs

\* The member aborts what it has open, and begins again with another consumer.
\* client/magnetar/groups/assigned_receivers.py
Abort(m) ==
    LET open == Range(members[m].open) IN
    /\ open # {}
    /\ txns' = [t \in Txns |-> IF t \in open /\ txns[t].status = "open" THEN [txns[t] EXCEPT !.status = "aborting"] ELSE txns[t]]
    /\ members' = [members EXCEPT ![m].open = <<>>, ![m].given = <<>>, ![m].attached = FALSE, ![m].aborted = @ \cup open]
    /\ UNCHANGED <<cursor, outputs, sent, wrong>> /\ OnlyInputs

\* Rule f: the coordinator aborts what a member left behind.
\* broker/magnetar_broker/groups/groups.py: _abort_left_behind
AbortLeftBehind(t) ==
    /\ t \in cursor.pending /\ txns[t].status = "open" /\ txns[t].member \notin group.in
    /\ txns' = [txns EXCEPT ![t].status = "aborting"]
    /\ UNCHANGED <<members, cursor, outputs, sent, wrong>> /\ OnlyInputs

\* Rule k: the outputs of a producer become visible in the order of its commits.
EndOutput(t) ==
    /\ txns[t].status = "committing"
    /\ \A u \in Txns : (u < t /\ txns[u].member = txns[t].member) => txns[u].status \notin {"open", "committing"}
    /\ txns' = [txns EXCEPT ![t].status = "visible"]
    /\ outputs' = Append(outputs, txns[t].input)
    /\ UNCHANGED <<members, cursor, sent, wrong>> /\ OnlyInputs

\* Partitions before subscriptions: when the next input comes, the outputs before it are in place.
\* coordinator/magnetar_coordinator/ending/end_state.py
EndAck(t) ==
    LET isCommit == txns[t].status = "visible" \/ (Has("subscription_ends_first") /\ txns[t].status = "committing") IN
    /\ (isCommit \/ txns[t].status = "aborting")
    /\ t \notin cursor.ended
    /\ cursor' = [cursor EXCEPT !.ended = @ \cup {t}, !.pending = @ \ {t},
                                !.acked = IF isCommit THEN @ \cup {txns[t].input} ELSE @,
                                !.given = IF isCommit THEN @ ELSE @ \ {txns[t].input},
                                !.waits = IF Has("first_end_is_enough") THEN {} ELSE @]
    /\ UNCHANGED <<members, txns, outputs, sent, wrong>> /\ OnlyInputs

-----------------------------------------------------------------------------

Next ==
    \/ \E m \in Members : Join(m) \/ TakeJoin(m) \/ Expel(m) \/ HearAssigned(m) \/ Release(m) \/ TakeRelease(m)
    \/ Give
    \/ \E m \in Members : Attach(m) \/ Deliver(m) \/ Process(m) \/ Commit(m) \/ Abort(m)
    \/ \E t \in Txns : TakeAck(t) \/ AbortLeftBehind(t) \/ EndOutput(t) \/ EndAck(t)

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Members)

-----------------------------------------------------------------------------
(* Promises *)

\* Promise 1.
OneOwnerInAGeneration == \A one \in owners, other \in owners : one[1] = other[1] => one[2] = other[2]
\* Promise 2.
OnlyOwnersAcksCount == \A one \in wrong : one[1] # "ack"
\* Each input is processed once. Invariant 4.
Once == Cardinality(Range(outputs)) = Len(outputs)
\* The order of inputs is the order of outputs. Invariant 5.
InOrder == \A i \in DOMAIN outputs : \A j \in DOMAIN outputs : i < j => outputs[i] < outputs[j]
\* A member that has left does not come back by itself.
NoReturn == \A one \in wrong : one[1] # "return"

\* Situations that have to arise.
NeverMoves == Cardinality({one[2] : one \in owners}) < 2
NeverDone == Len(outputs) < Inputs
NeverWaits == ~(IsWaiting /\ cursor.consumer = group.owner /\ group.owner # Nobody)
=============================================================================
