-------------------------------- MODULE Trace --------------------------------
(*
  Is a recorded history of the real servers a behaviour of Commit.tla?

  Recorded.tla is made for each run. Its `Histories` has histories as sequences of records:
  tests/spec/traces.py translates the events that servers note. `BrokerOf` says which broker has each
  participant. A record stands for an action, or for something that the state has to show: an answer that
  leaves, what a server finds in its store. TLC takes one record after the other, and says where no
  behaviour goes on.

  Clients note nothing. So their steps come between records, as do a few others (`Unrecorded`): each only
  where a record ahead has need of it. All of them are steps of Commit.tla.

  Participants. In Commit.tla a participant writes in one action. Here a record is taken when the memory of
  a broker has changed, and `stored` is what its store has. What others may do only when it is stored
  (rule a) is compared with `stored`. What a crash has taken back never was, so its records are passed over:
  `kept` says which of the groups were stored that nobody saw becoming durable. If anybody had heard of what
  is passed over, his record is refused.
*)
EXTENDS Commit, Integers, Recorded

VARIABLES
    which,       \* the history
    at,          \* the record that is next
    stored,      \* what is durable of each participant
    writing,     \* the same, of the groups that are being written
    positions,   \* the groups of each server: the last one that was sealed, and that is durable
    marker,      \* a marker whose end comes next
    told,        \* writes that were confirmed to their clients
    kept         \* groups that were stored, of those that nobody saw becoming durable
own == <<which, at, stored, writing, positions, marker, told, kept>>
traced == <<vars, own>>

Coordinator == "coordinator"
Brokers == {BrokerOf[p] : p \in Participants}
History == Histories[which]
Ahead == {History[j] : j \in at .. Len(History)}

\* Mistakes may name what there is not.
IsKnown(e) ==
    /\ "txn" \in DOMAIN e => e.txn \in Txns
    /\ "client" \in DOMAIN e => e.client \in Clients
    /\ {"at", "server"} \subseteq DOMAIN e => BrokerOf[e.at] = e.server
NoMarker == <<>>
Snapshot == [p \in Participants |-> [state |-> participants[p], fate |-> fate[p]]]

\* A group with a number is one that nobody saw becoming durable. 0: it is not such a group.
Doubtful == {History[j].group : j \in {k \in DOMAIN History : "group" \in DOMAIN History[k]}} \ {0}

TraceInit ==
    /\ Init
    /\ which \in DOMAIN Histories /\ at = 1
    /\ stored = Snapshot /\ writing = Snapshot
    /\ positions = [s \in Brokers \cup {Coordinator} |-> [sealed |-> 0, durable |-> 0]]
    /\ marker = NoMarker /\ told = {}
    /\ kept \in SUBSET Doubtful

-----------------------------------------------------------------------------
(* What no event stands for. *)

Stay == UNCHANGED own

ClientOf(t) == LET begun == {m \in sent : m.kind = "begun" /\ m.txn = t} IN
    IF begun = {} THEN NoTxn ELSE (CHOOSE m \in begun : TRUE).client

TargetsOf(t) == {e.at : e \in {History[j] : j \in {k \in DOMAIN History :
    History[k].kind \in {"wrote", "added"} /\ History[k].txn = t}}}

\* A client has ended a transaction, one way or another, before it begins the next one.
GoesOn(c) == HearOutcome(c) \/ GoOnWithoutAnswer(c)

\* A commit counts what its client was told to be stored.
RestsOnConfirmations(c) == \A p \in clients[c].wrote : [txn |-> clients[c].txn, at |-> p] \in told

ClientStep(e) ==
    \/ /\ e.kind = "opened"
       /\ GoesOn(e.client) \/ AskForTransaction(e.client)
    \/ /\ e.kind \in {"wrote", "added"} /\ ClientOf(e.txn) # NoTxn
       /\ clients[ClientOf(e.txn)].txn # e.txn
       /\ Write(ClientOf(e.txn)) /\ clients'[ClientOf(e.txn)].wrote = TargetsOf(e.txn)
    \/ e.kind = "plain" /\ (GoesOn(e.client) \/ SendPlainly(e.client, e.at))

\* A client asks before its transaction is decided, and before it goes on: then it may have heard a
\* refusal, which tells the outcome as well, and for which no event stands. It may also ask late, of a
\* transaction that has expired or is lost: then the answer is among the records ahead.
IsAsked(e, t) ==
    \/ e.kind = "decided" /\ e.txn = t
    \/ e.kind \in {"opened", "plain"} /\ clients[e.client].txn = t
IsAskedLate(t) ==
    /\ \E one \in Ahead : one.kind = "answered" /\ one.txn = t
    /\ Known(t) # "none" /\ IsNews([kind |-> "answer", txn |-> t, outcome |-> Known(t)])

EndStep(e) ==
    \E t \in Txns :
        LET c == ClientOf(t) IN
        /\ c # NoTxn /\ (IsAsked(e, t) \/ IsAskedLate(t))
        /\ \/ Write(c) /\ clients'[c].txn = t /\ clients'[c].wrote = TargetsOf(t)
           \/ clients[c].txn = t /\ RestsOnConfirmations(c) /\ AskToEnd(c, "commit")
           \/ clients[c].txn = t /\ (AskToEnd(c, "abort") \/ AskToAbortAsWell(c))
           \/ Known(t) # "none" /\ End /\ memory' = memory

\* A watermark is chosen some time before it leaves.
AnnounceStep ==
    \E e \in {one \in Ahead : one.kind = "announced"} :
        LET news == [kind |-> "watermark", mark |-> e.mark, live |-> e.live] IN
        /\ IsNews(news) /\ Announce
        /\ news \in sent' \cup parked' \cup Answered(sealed')

\* A group may be stored although nobody lived to see it.
LastGroupStep(e) == e.kind = "recovered" /\ CommitGroup

Unrecorded ==
    /\ at <= Len(History) /\ marker = NoMarker /\ IsKnown(History[at])
    /\ \/ ClientStep(History[at]) \/ EndStep(History[at]) \/ AnnounceStep \/ LastGroupStep(History[at])
    /\ Stay

-----------------------------------------------------------------------------
(* What events stand for. *)

Look == UNCHANGED vars
KeepOwn == UNCHANGED <<stored, writing, positions, marker, told>>

\* The coordinator.

TakeReserved(e) == Reserve /\ memory'.bound = e.bound /\ KeepOwn

TakeOpened(e) ==
    /\ memory.next = e.txn /\ e.txn < memory.bound /\ Begin
    /\ \E m \in sent' \cup parked' \cup Answered(sealed') :
           m.kind = "begun" /\ m.txn = e.txn /\ m.client = e.client /\ m.step = clients[e.client].step
    /\ KeepOwn

TakeTold(e) ==
    /\ \E m \in sent : m.kind = "begun" /\ m.txn = e.txn
    /\ e.early \/ rows.status[e.txn] # "unknown"
    /\ Look /\ KeepOwn

TakeAdded(e) ==
    /\ \/ Enroll /\ e.at \notin memory.enrolled[e.txn] /\ memory'.enrolled[e.txn] = memory.enrolled[e.txn] \cup {e.at}
       \/ Look /\ memory.status[e.txn] = "open" /\ e.at \in memory.enrolled[e.txn]
    /\ KeepOwn

TakeEnrolled(e) == [kind |-> "enrolled", txn |-> e.txn, at |-> e.at] \in sent /\ Look /\ KeepOwn

TakeDecided(e) ==
    /\ memory.status[e.txn] = "open" /\ (End \/ Expire(e.txn))
    /\ memory'.outcome[e.txn] = e.outcome /\ memory'.counts[e.txn] = e.counts
    /\ KeepOwn

TakeAnswered(e) == [kind |-> "answer", txn |-> e.txn, outcome |-> e.outcome] \in sent /\ Look /\ KeepOwn

HasStoredEnd(p, t, outcome) ==
    \/ stored[p].fate[t] = outcome
    \/ Covers(stored[p].state, t) /\ stored[p].state.held[t] = 0

\* Rule a: the coordinator hears of ends that are stored. Without participants a transaction has ended
\* with its decision, which is the same step here.
TakeFinished(e) ==
    /\ memory.outcome[e.txn] = e.outcome
    /\ \A p \in memory.enrolled[e.txn] : HasStoredEnd(p, e.txn, e.outcome)
    /\ IF memory.enrolled[e.txn] = {} THEN Look ELSE Finish(e.txn)
    /\ KeepOwn

TakeAnnounced(e) == [kind |-> "watermark", mark |-> e.mark, live |-> e.live] \in sent /\ Look /\ KeepOwn

FoundAt(state, t) == [txn |-> t, at |-> state.enrolled[t],
    outcome |-> IF state.status[t] = "open" THEN "none" ELSE state.outcome[t], counts |-> state.counts[t]]

TakeRecovered(e) ==
    /\ CrashCoordinator
    /\ memory'.next = e.next
    /\ {FoundAt(memory', t) : t \in {u \in Txns : memory'.status[u] \in {"open", "committing", "aborting"}}} = e.live
    /\ {t \in Txns : memory'.status[t] = "lost" /\ rows.status[t] = "unknown"} = e.lost
    /\ positions' = [positions EXCEPT ![Coordinator] = [sealed |-> e.sealed, durable |-> e.durable]]
    /\ UNCHANGED <<stored, writing, marker, told>>

\* Groups, of both kinds of servers.

TakeSealed(e) ==
    LET known == positions[e.server] IN
    /\ known.sealed = known.durable /\ e.position > known.sealed
    /\ positions' = [positions EXCEPT ![e.server].sealed = e.position]
    /\ IF e.server = Coordinator
       THEN (SealGroup \/ (OpenGroup = <<>> /\ Look)) /\ UNCHANGED writing
       ELSE Look /\ writing' = [p \in Participants |-> IF BrokerOf[p] = e.server THEN Snapshot[p] ELSE writing[p]]
    /\ UNCHANGED <<stored, marker, told>>

TakeDurable(e) ==
    LET known == positions[e.server] IN
    /\ e.position = known.sealed /\ e.position > known.durable
    /\ positions' = [positions EXCEPT ![e.server].durable = e.position]
    /\ IF e.server = Coordinator
       THEN (CommitGroup \/ (sealed = <<>> /\ Look)) /\ UNCHANGED stored
       ELSE Look /\ stored' = [p \in Participants |-> IF BrokerOf[p] = e.server THEN writing[p] ELSE stored[p]]
    /\ UNCHANGED <<writing, marker, told>>

\* Participants.

TakeWrote(e) ==
    /\ e.index = 0 /\ e.writes = 1 /\ participants[e.at].held[e.txn] = 0
    /\ AcceptWrite
    /\ participants'[e.at].held[e.txn] = 1 /\ participants'[e.at].follows[e.txn] = e.follows
    /\ KeepOwn

\* Rule a: a write is confirmed when it is stored.
TakeConfirmed(e) ==
    /\ e.writes <= stored[e.at].state.held[e.txn] \/ stored[e.at].fate[e.txn] # "no"
    /\ told' = told \cup {[txn |-> e.txn, at |-> e.at]}
    /\ Look /\ UNCHANGED <<stored, writing, positions, marker>>

PlainsOf(c, log) == {j \in DOMAIN log : log[j].txn = NoTxn /\ log[j].client = c}

TakePlain(e) ==
    LET log == participants[e.at].log IN
    /\ e.offset = Len(log) /\ e.sequence = Cardinality(PlainsOf(e.client, log))
    /\ AcceptPlainSend
    /\ Len(participants'[e.at].log) = Len(log) + 1
    /\ participants'[e.at].log[Len(log) + 1].client = e.client
    /\ KeepOwn

TakePlainConfirmed(e) ==
    LET log == stored[e.at].state.log IN
    /\ e.offset < Len(log) /\ log[e.offset + 1].txn = NoTxn /\ log[e.offset + 1].client = e.client
    /\ Cardinality({j \in PlainsOf(e.client, log) : j <= e.offset}) = e.sequence
    /\ Look /\ KeepOwn

\* A marker and its end are one step.
TakeMarker(e) ==
    /\ e.offset = Len(participants[e.at].log) /\ e.messages = participants[e.at].held[e.txn]
    /\ fate[e.at][e.txn] = "no"
    /\ marker' = <<[at |-> e.at, txn |-> e.txn]>>
    /\ Look /\ UNCHANGED <<stored, writing, positions, told>>

\* Rule p: a subscription ends a commit when the partitions at other brokers have stored its end.
PartitionsHaveStored(e) == (e.at = Subscription /\ e.outcome = "commit") =>
    \A q \in rows.enrolled[e.txn] \ {Subscription} :
        BrokerOf[q] = BrokerOf[e.at] \/ HasStoredEnd(q, e.txn, "commit")

TakeEnded(e) ==
    LET before == participants[e.at] after == participants'[e.at]
        needsMarker == e.at # Subscription /\ e.kept > 0
    IN
    /\ marker = (IF needsMarker THEN <<[at |-> e.at, txn |-> e.txn]>> ELSE NoMarker)
    /\ PartitionsHaveStored(e)
    /\ before.held[e.txn] = e.held
    /\ EndAtParticipant(e.at, e.txn)
    /\ fate'[e.at][e.txn] = e.outcome
    /\ IF e.kept = 0 THEN after.log = before.log
       ELSE /\ Len(after.log) = Len(before.log) + 1
            /\ after.log[Len(after.log)].txn = e.txn /\ after.log[Len(after.log)].kept = e.kept
    /\ after.follows[e.txn] = e.follows
    /\ marker' = NoMarker
    /\ UNCHANGED <<stored, writing, positions, told>>

\* One record for each participant of the broker.
TakeWatermark(e) ==
    LET p == e.at
        IsTaken(state) == state.mark = e.mark /\ {t \in state.live : t < state.mark} = e.live
    IN
    /\ \/ HearWatermark(p) /\ IsTaken(participants'[p])
       \/ IsTaken(participants[p]) /\ Look  \* nothing new
    /\ KeepOwn

\* The model forgets ends with the watermark that covers them.
TakeForgot(e) ==
    /\ \A t \in e.txns : Covers(participants[e.at], t) /\ participants[e.at].ended[t] = "no"
    /\ Look /\ KeepOwn

Found(state) == [
    held |-> {[txn |-> t, writes |-> state.held[t], follows |-> state.follows[t]] : t \in {u \in Txns : state.held[u] > 0}},
    end |-> Len(state.log), mark |-> state.mark, live |-> {t \in state.live : t < state.mark}]

UnsettledOf(state, txns) == {t \in txns : IsUnsettled(state, t)}

\* A recorded end may still be there although a watermark covers it: the code forgets it with the next one.
FindsEnds(state, found) ==
    /\ \A t \in Txns : state.ended[t] # "no" => \E one \in found : one.txn = t
    /\ \A one \in found : (state.ended[one.txn] = one.outcome /\ UnsettledOf(state, one.follows) = UnsettledOf(state, state.follows[one.txn]))
                          \/ (state.ended[one.txn] = "no" /\ Covers(state, one.txn))

\* A crash takes back nothing of what is stored, and all else was passed over.
TakeRestarted(e) ==
    /\ \A p \in {q \in Participants : BrokerOf[q] = e.server} :
           LET found == e.found[p] state == participants[p] IN
           /\ Found(state) = [held |-> found.held, end |-> found.end, mark |-> found.mark, live |-> found.live]
           /\ FindsEnds(state, found.ended)
    /\ positions' = [positions EXCEPT ![e.server] = [sealed |-> e.sealed, durable |-> e.durable]]
    /\ LET now == [p \in Participants |-> IF BrokerOf[p] = e.server THEN Snapshot[p] ELSE stored[p]] IN
       stored' = now /\ writing' = [p \in Participants |-> IF BrokerOf[p] = e.server THEN Snapshot[p] ELSE writing[p]]
    /\ Look /\ UNCHANGED <<marker, told>>

Take(e) ==
    IF "group" \in DOMAIN e /\ e.group # 0 /\ e.group \notin kept THEN Look /\ KeepOwn
    ELSE CASE e.kind = "reserved" -> TakeReserved(e)
           [] e.kind = "opened" -> TakeOpened(e)
           [] e.kind = "told" -> TakeTold(e)
           [] e.kind = "added" -> TakeAdded(e)
           [] e.kind = "enrolled" -> TakeEnrolled(e)
           [] e.kind = "decided" -> TakeDecided(e)
           [] e.kind = "answered" -> TakeAnswered(e)
           [] e.kind = "finished" -> TakeFinished(e)
           [] e.kind = "announced" -> TakeAnnounced(e)
           [] e.kind = "recovered" -> TakeRecovered(e)
           [] e.kind = "sealed" -> TakeSealed(e)
           [] e.kind = "durable" -> TakeDurable(e)
           [] e.kind = "wrote" -> TakeWrote(e)
           [] e.kind = "confirmed" -> TakeConfirmed(e)
           [] e.kind = "plain" -> TakePlain(e)
           [] e.kind = "plain confirmed" -> TakePlainConfirmed(e)
           [] e.kind = "marker" -> TakeMarker(e)
           [] e.kind = "ended" -> TakeEnded(e)
           [] e.kind = "watermark" -> TakeWatermark(e)
           [] e.kind = "forgot" -> TakeForgot(e)
           [] e.kind = "restarted" -> TakeRestarted(e)

TraceNext ==
    \/ Unrecorded
    \/ /\ at <= Len(History)
       /\ marker # NoMarker => History[at].kind = "ended"
       /\ IsKnown(History[at]) /\ Take(History[at])
       /\ at' = at + 1 /\ UNCHANGED <<which, kept>>

TraceSpec == TraceInit /\ [][TraceNext]_traced

-----------------------------------------------------------------------------
(* What is asked. *)

\* TLC has to refute this: the history is a behaviour to its end.
NeverAtTheEnd == at <= Len(History)

\* Each step is one of Commit.tla, or changes nothing there.
IsOfCommit == [][Next]_vars

\* Prints the farthest record of each history, which is the one that is refused, if it is no behaviour.
Farthest ==
    IF at <= TLCGet(which) THEN TRUE
    ELSE TLCSet(which, at) /\ PrintT(<<"farthest", which, at>>)
ASSUME \A one \in DOMAIN Histories : TLCSet(one, 0)
=============================================================================
