-------------------------------- MODULE Cuts --------------------------------
(*
  A consistent cut: one moment over several partitions, of commits that several coordinators decide.

  The promises and the steps are those of docs/design/0015-cuts.md. Above each action stand the step and
  the code that it stands for. Each transaction writes to all partitions. What a step changes at a
  coordinator is durable with the step (rule a).

  Wall clocks may show anything at any time: `Times`. A coordinator may restart, and may lose its store
  when all that it decided is finished. (Rule n is about what is not.) Plain messages are left
  out: a cut has those below its ends.

  `Mistake` names what is planted, or is "none". tests/spec/runs/cuts.py says what finds it.
*)
EXTENDS Naturals, Sequences, FiniteSets, TLC

CONSTANTS
    Clients,
    Coordinators,
    Partitions,
    Transactions,  \* how many there are; the first is 0
    Times,         \* what wall clocks may show, as stamps
    Ahead,         \* how far a new bound lies above the stamp for which it is made
    Restarts,
    Losses,        \* how often a coordinator may lose its store
    CutsMax,       \* how many cuts are taken, one after the other
    Mistake

VARIABLES
    coordinators,
    commits,       \* the decided transactions
    logs,          \* the markers of each partition, in order
    clients,
    answered,      \* the commits that a client knows to be decided
    cut,           \* the one that is being taken
    cuts,          \* those that were taken
    faults
vars == <<coordinators, commits, logs, clients, answered, cut, cuts, faults>>

Has(mistake) == Mistake = mistake
Larger(a, b) == IF a > b THEN a ELSE b
Highest(stamps) == CHOOSE s \in stamps \cup {0} : \A other \in stamps : other <= s
Missing == 99

Txns == DOMAIN commits
Stamps(txns) == {commits[t].stamp : t \in txns}
In(log, first, last) == {log[i] : i \in {j \in DOMAIN log : first < j /\ j <= last}}
HasEnded(t) == \A p \in Partitions : t \in In(logs[p], 0, Len(logs[p]))
Unfinished(c, stamp) == {t \in Txns : commits[t].by = c /\ commits[t].stamp <= stamp /\ ~HasEnded(t)}

NoCut == [phase |-> "none",
          asked |-> {},                                 \* what was answered before it was asked for
          begins |-> [p \in Partitions |-> Missing],
          highest |-> [p \in Partitions |-> 0],         \* the highest stamp of each partition
          clocks |-> [c \in Coordinators |-> Missing],
          incarnations |-> [c \in Coordinators |-> Missing],
          closing |-> {}, closed |-> {},
          ends |-> [p \in Partitions |-> Missing],
          same |-> {}]                                  \* the coordinators that are the same at the end

Init ==
    /\ coordinators = [c \in Coordinators |-> [clock |-> 0, bound |-> 1, incarnation |-> 0]]
    /\ commits = <<>>
    /\ logs = [p \in Partitions |-> <<>>]
    /\ clients = [c \in Clients |-> [phase |-> "idle", knows |-> {}, told |-> 0, txn |-> 0]]
    /\ answered = {}
    /\ cut = NoCut
    /\ cuts = <<>>
    /\ faults = [restarts |-> Restarts, losses |-> Losses]

-----------------------------------------------------------------------------
(* Transactions *)

OnlyTransactions == UNCHANGED <<cut, cuts, faults>>

\* client/magnetar/transactions/beginning.py
BeginTransaction(i) ==
    /\ clients[i].phase = "idle" /\ Cardinality(Txns) < Transactions
    /\ clients' = [clients EXCEPT ![i].phase = "begun", ![i].told = Highest(Stamps(clients[i].knows))]
    /\ UNCHANGED <<coordinators, commits, logs, answered>> /\ OnlyTransactions

\* Promise 3: a delivered message tells the stamp of its transaction.
\* broker/magnetar_broker/log/log_reader.py
ReadMarker(i, p) ==
    /\ \E t \in In(logs[p], 0, Len(logs[p])) \ clients[i].knows :
           clients' = [clients EXCEPT ![i].knows = @ \cup {t}]
    /\ UNCHANGED <<coordinators, commits, logs, answered>> /\ OnlyTransactions

\* The bound lies above all stamps, and is stored with the first that reaches it.
\* core/magnetar_core/cuts/hybrid_clock.py: bound_above
WithClock(coordinator, stamp) ==
    [coordinator EXCEPT !.clock = stamp, !.bound = IF stamp < @ THEN @ ELSE stamp + Ahead]

\* EndTxn tells what the client has seen, and the clock rises to it before the commit gets its stamp.
\* coordinator/magnetar_coordinator/runtime.py: hear
\* core/magnetar_core/cuts/hybrid_clock.py: next
Decide(i, c) ==
    LET told == IF Has("seen_stamps_not_told") THEN 0
                ELSE IF Has("told_at_the_beginning_only") THEN clients[i].told
                ELSE Highest(Stamps(clients[i].knows))
        t == Cardinality(Txns)
    IN
    /\ clients[i].phase = "begun" /\ t < Transactions
    /\ \E time \in Times :
         LET stamp == Larger(Larger(coordinators[c].clock, told) + 1, time) IN
         /\ commits' = [u \in 0 .. t |-> IF u < t THEN commits[u]
                           ELSE [by |-> c, stamp |-> stamp, causes |-> clients[i].knows]]
         /\ coordinators' = [coordinators EXCEPT ![c] = WithClock(@, stamp)]
    /\ clients' = [clients EXCEPT ![i].phase = "asked", ![i].txn = t]
    /\ UNCHANGED <<logs, answered>> /\ OnlyTransactions

\* coordinator/magnetar_coordinator/transactions/responses.py: ended
HearAnswer(i) ==
    /\ clients[i].phase = "asked"
    /\ clients' = [clients EXCEPT ![i].phase = "idle", ![i].knows = @ \cup {clients[i].txn}]
    /\ answered' = answered \cup {clients[i].txn}
    /\ UNCHANGED <<coordinators, commits, logs>> /\ OnlyTransactions

\* broker/magnetar_broker/topics/partition.py: end
EndAtPartition(t, p) ==
    /\ t \notin In(logs[p], 0, Len(logs[p]))
    /\ logs' = [logs EXCEPT ![p] = Append(@, t)]
    /\ UNCHANGED <<coordinators, commits, clients, answered>> /\ OnlyTransactions

\* Stamps go on at the bound.
\* coordinator/magnetar_coordinator/metadata_store.py: reserve_stamps
Restart(c) ==
    /\ faults.restarts > 0
    /\ coordinators' = [coordinators EXCEPT ![c].clock = coordinators[c].bound - 1]
    /\ faults' = [faults EXCEPT !.restarts = @ - 1]
    /\ UNCHANGED <<commits, logs, clients, answered, cut, cuts>>

LoseStore(c) ==
    /\ faults.losses > 0 /\ \A t \in Txns : commits[t].by = c => HasEnded(t)
    /\ coordinators' = [coordinators EXCEPT ![c] =
           [clock |-> 0, bound |-> 1, incarnation |-> @.incarnation + 1]]
    /\ faults' = [faults EXCEPT !.losses = @ - 1]
    /\ UNCHANGED <<commits, logs, clients, answered, cut, cuts>>

-----------------------------------------------------------------------------
(* Taking a cut. client/magnetar/cuts/taking.py: _try *)

OnlyCut == UNCHANGED <<commits, logs, clients, answered, faults>>

AskForCut ==
    /\ cut.phase = "none" /\ Len(cuts) < CutsMax
    /\ cut' = [NoCut EXCEPT !.phase = "taken", !.asked = answered]
    /\ UNCHANGED <<coordinators, cuts>> /\ OnlyCut

IsTaken == cut.phase = "taken"
Stamp == Highest(({cut.clocks[c] : c \in Coordinators} \ {Missing}) \cup
                 (IF Has("highest_stamps_ignored") THEN {} ELSE {cut.highest[p] : p \in Partitions}))
HasBegins == \A p \in Partitions : cut.begins[p] # Missing
HasClocks == IF Has("one_clock_is_enough") THEN \E c \in Coordinators : cut.clocks[c] # Missing
             ELSE \A c \in Coordinators : cut.clocks[c] # Missing
HasClosed == cut.closed = Coordinators
HasEnds == \A p \in Partitions : cut.ends[p] # Missing

\* Step 1: the incarnation of each coordinator.
\* client/magnetar/cuts/taking.py: _ask_all
AskIncarnation(c) ==
    /\ IsTaken /\ cut.incarnations[c] = Missing /\ ~Has("loss_before_clocks_not_seen")
    /\ cut' = [cut EXCEPT !.incarnations[c] = coordinators[c].incarnation]
    /\ UNCHANGED <<coordinators, cuts>> /\ OnlyCut
HasIncarnations == \A c \in Coordinators : cut.incarnations[c] # Missing

\* Step 2: where each partition ends, and its highest stamp.
LookAtBegin(p) ==
    /\ IsTaken /\ (HasIncarnations \/ Has("loss_before_clocks_not_seen")) /\ cut.begins[p] = Missing /\ (Has("begins_after_closing") => HasClosed)
    /\ cut' = [cut EXCEPT !.begins[p] = Len(logs[p]),
                          \* Once it is closed, nothing changes the stamp of the cut.
                          !.highest[p] = IF HasClosed THEN 0 ELSE Highest(Stamps(In(logs[p], 0, Len(logs[p]))))]
    /\ UNCHANGED <<coordinators, cuts>> /\ OnlyCut

\* Step 3: a stamp that no stamp so far exceeds. It is reserved before the answer.
\* coordinator/magnetar_coordinator/commands/cut_commands.py: _answer
\* core/magnetar_core/cuts/hybrid_clock.py: now
AskClock(c) ==
    /\ IsTaken /\ (HasBegins \/ (HasIncarnations /\ Has("begins_after_closing"))) /\ cut.clocks[c] = Missing /\ cut.closing = {}
    /\ \E time \in Times :
         LET clock == Larger(coordinators[c].clock, time) IN
         /\ coordinators' = [coordinators EXCEPT ![c] = WithClock(@, clock)]
         /\ cut' = [cut EXCEPT !.clocks[c] = clock,
                               !.incarnations[c] = IF @ = Missing THEN coordinators[c].incarnation ELSE @]
    /\ UNCHANGED cuts /\ OnlyCut

\* Step 4: from now on the coordinator stamps above the cut.
\* coordinator/magnetar_coordinator/commands/cut_commands.py: _close_cut
Close(c) ==
    LET clock == Larger(coordinators[c].clock, Stamp) IN
    /\ IsTaken /\ HasClocks /\ c \notin cut.closing
    /\ coordinators' = [coordinators EXCEPT ![c] =
           IF Has("closing_raises_no_clock") THEN @
           ELSE IF Has("closing_is_forgotten") THEN [@ EXCEPT !.clock = clock]
           ELSE WithClock(@, clock)]
    /\ cut' = [cut EXCEPT !.closing = @ \cup {c}]
    /\ UNCHANGED cuts /\ OnlyCut

\* It answers when all that it decided up to the cut is finished. A question that a restart has
\* interrupted is asked again.
\* coordinator/magnetar_coordinator/ending/cut_closings.py: finished
Closed(c) ==
    /\ c \in cut.closing \ cut.closed
    /\ Unfinished(c, Stamp) = {} \/ Has("closing_does_not_wait")
    /\ cut' = [cut EXCEPT !.closed = @ \cup {c}]
    /\ UNCHANGED <<coordinators, cuts>> /\ OnlyCut

\* Step 5: everything up to the cut lies below these ends.
LookAtEnd(p) ==
    /\ IsTaken /\ HasBegins /\ (HasClosed \/ (Has("ends_before_closing") /\ HasClocks)) /\ cut.ends[p] = Missing
    /\ cut' = [cut EXCEPT !.ends[p] = Len(logs[p])]
    /\ UNCHANGED <<coordinators, cuts>> /\ OnlyCut

\* Step 6: none has lost its store meanwhile. Otherwise the cut is void.
\* client/magnetar/cuts/taking.py: _incarnations
AskAgain(c) ==
    LET isSame == coordinators[c].incarnation = cut.incarnations[c] \/ Has("incarnations_not_compared")
        same == cut.same \cup {c}
    IN
    /\ IsTaken /\ HasClosed /\ HasEnds /\ c \notin cut.same
    /\ IF ~isSame THEN cut' = NoCut /\ UNCHANGED cuts
       ELSE IF same # Coordinators THEN cut' = [cut EXCEPT !.same = same] /\ UNCHANGED cuts
       ELSE /\ cut' = NoCut
            /\ cuts' = Append(cuts, [stamp |-> Stamp, begins |-> cut.begins, ends |-> cut.ends, asked |-> cut.asked])
    /\ UNCHANGED coordinators /\ OnlyCut

-----------------------------------------------------------------------------

Next ==
    \/ \E i \in Clients : BeginTransaction(i) \/ HearAnswer(i)
    \/ \E i \in Clients, p \in Partitions : ReadMarker(i, p)
    \/ \E i \in Clients, c \in Coordinators : Decide(i, c)
    \/ \E t \in Txns, p \in Partitions : EndAtPartition(t, p)
    \/ \E c \in Coordinators : Restart(c) \/ LoseStore(c)
    \/ AskForCut
    \/ \E p \in Partitions : LookAtBegin(p) \/ LookAtEnd(p)
    \/ \E c \in Coordinators : AskIncarnation(c) \/ AskClock(c) \/ Close(c) \/ Closed(c) \/ AskAgain(c)

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Clients) \cup Permutations(Coordinators) \cup Permutations(Partitions)

-----------------------------------------------------------------------------
(* Promises *)

Taken(n, p) == {t \in In(logs[p], 0, cuts[n].ends[p]) : commits[t].stamp <= cuts[n].stamp}
InCut(n, t) == \A p \in Partitions : t \in Taken(n, p)

\* Promise 1.
Whole == \A n \in DOMAIN cuts : \A t \in Txns : InCut(n, t) \/ \A p \in Partitions : t \notin Taken(n, p)

\* Promise 2.
HasAnswered == \A n \in DOMAIN cuts : \A t \in cuts[n].asked : InCut(n, t)

\* Promise 3.
HasCauses == \A n \in DOMAIN cuts : \A t \in Txns : InCut(n, t) => \A u \in commits[t].causes : InCut(n, u)

\* Promise 5: what lies between the ends, and what the first cut has seen and left out.
\* core/magnetar_core/cuts/cuts.py
Between(m, n, p) ==
    {t \in In(logs[p], cuts[m].ends[p], cuts[n].ends[p]) : commits[t].stamp <= cuts[n].stamp} \cup
    {t \in In(logs[p], cuts[m].begins[p], cuts[m].ends[p]) :
        cuts[m].stamp < commits[t].stamp /\ commits[t].stamp <= cuts[n].stamp}
OnceFromCutToCut == \A n \in DOMAIN cuts : n > 1 =>
    \A p \in Partitions :
        /\ Taken(n - 1, p) \subseteq Taken(n, p)
        /\ Between(n - 1, n, p) = Taken(n, p) \ Taken(n - 1, p)

\* Situations that have to arise.
NeverTaken == \A n \in DOMAIN cuts : \A t \in Txns : ~InCut(n, t)
NeverLeftOut == \A n \in DOMAIN cuts : \A p \in Partitions :
    \A t \in In(logs[p], 0, cuts[n].ends[p]) : commits[t].stamp <= cuts[n].stamp
NeverBetween == \A n \in DOMAIN cuts : n > 1 => \A p \in Partitions :
    {t \in In(logs[p], cuts[n - 1].begins[p], cuts[n - 1].ends[p]) : commits[t].stamp > cuts[n - 1].stamp} = {}
=============================================================================
