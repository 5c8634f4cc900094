------------------------------ MODULE Identity ------------------------------
(*
  A transactional id and a database that takes part: rule o of docs/protocol/rules.md, and
  docs/design/0002-two-phase-commit.md. Above each action stands the code that it stands for.

  Several instances of one program use the id one after another, or at the same time when one is taken
  for dead and goes on. Each writes its data to the database together with the prepared transaction, and
  commits the transaction afterwards. Whatever they do, database and topics must agree.

  A step of the coordinator is durable at once; module Commit checks what that needs. `sent` is a set of
  messages that only grows, as in Commit. `Mistake` names what is planted, or is "none".
*)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Instances,     \* each calls InitProducer once, with a token of its own
    Transactions,  \* TxnIDs are 0 to Transactions - 1
    EpochMax,      \* the last epoch; behind it the id gets another producer id
    Keeps,         \* whether an instance keeps the transaction of its predecessor, as the recipe does
    BothAsked,     \* whether an instance may ask for an abort after it asked for an end
    Mistake

VARIABLES
    id,            \* the coordinator's row of the transactional id
    producerIds,   \* how many producer ids were given out
    outcomes,      \* of each transaction
    instances,
    database,      \* the program's row: who owns it, and the last transaction that it names
    stored,        \* the transactions whose data the database has committed
    superseded,    \* the instances from which another one has taken the id
    acted,         \* who began or ended a transaction, and whether that instance was superseded
    sent
vars == <<id, producerIds, outcomes, instances, database, stored, superseded, acted, sent>>

Txns == 0 .. Transactions - 1
NoTxn == 99
Nobody == "nobody"
NoPair == <<0, 0>>    \* a pair is a producer id and an epoch
Has(mistake) == Mistake = mistake

Init ==
    /\ id = [state |-> "NONE", producer |-> NoPair, previous |-> NoPair, next |-> NoPair, txn |-> NoTxn,
             token |-> Nobody, given |-> NoPair, pastTokens |-> {}]
    /\ producerIds = 0
    /\ outcomes = [t \in Txns |-> "none"]
    /\ instances = [i \in Instances |-> [phase |-> "new", pair |-> NoPair, txn |-> NoTxn]]
    /\ database = [owner |-> Nobody, txn |-> NoTxn]
    /\ stored = {} /\ superseded = {} /\ acted = {} /\ sent = {}

-----------------------------------------------------------------------------
(* The coordinator's row: coordinator/magnetar_coordinator/metadata/transactional_id.py *)

Current(row) == IF row.next = NoPair THEN row.producer ELSE row.next
IsKept(row) == row.state = "ONGOING" /\ row.next # NoPair
Ending == {"PREPARE_COMMIT", "PREPARE_ABORT"}
Idle == {"EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"}
ActionOf(state) == CASE state \in {"PREPARE_COMMIT", "COMPLETE_COMMIT"} -> "commit"
                     [] state \in {"PREPARE_ABORT", "COMPLETE_ABORT"} -> "abort"
                     [] OTHER -> "none"

\* The last epoch is kept for completing a kept transaction, so that its producer id stays.
\* coordinator/magnetar_coordinator/metadata/transactional_id.py: raised, raised_to_complete, _raised
RaisedUpTo(pair, epochMax) == IF pair[2] < epochMax THEN <<pair[1], pair[2] + 1>>
                              ELSE IF Has("epoch_wraps") THEN <<pair[1], 0>>
                              ELSE <<producerIds + 1, 0>>
Raised(pair) == RaisedUpTo(pair, EpochMax - 1)
RaisedToComplete(pair) == RaisedUpTo(pair, EpochMax)

\* coordinator/magnetar_coordinator/metadata/transactional_id.py: initialised
TakenBy(row, i) == [row EXCEPT !.pastTokens = IF row.token = Nobody THEN @ ELSE @ \cup {row.token},
                               !.token = i, !.given = Current(row)]

\* coordinator/magnetar_coordinator/metadata/transactional_id.py: fix
Fixed(row, action) ==
    LET producer == <<row.producer[1], row.producer[2] + 1>>
        following == Raised(Current(row))
    IN [row EXCEPT !.state = IF action = "commit" THEN "PREPARE_COMMIT" ELSE "PREPARE_ABORT",
                   !.producer = producer, !.previous = Current(row),
                   !.next = IF following = producer THEN NoPair ELSE following]

Store(row, answers) ==
    /\ id' = row /\ sent' = sent \cup answers
    /\ producerIds' = IF Current(row)[1] > producerIds THEN Current(row)[1] ELSE producerIds
    /\ superseded' = IF row.token # id.token THEN superseded \cup {id.token} ELSE superseded
    /\ UNCHANGED <<instances, database, stored>>
Act(i) == acted' = acted \cup {<<i, i \in superseded>>}
OutcomesStay == UNCHANGED <<outcomes, acted>>

Initialised(row, i) ==
    {[kind |-> "initialised", instance |-> i, pair |-> Current(row), txn |-> IF IsKept(row) THEN row.txn ELSE NoTxn]}
Take(row, i) == Store(TakenBy(row, i), Initialised(row, i))

-----------------------------------------------------------------------------
(* The coordinator *)

\* Rule o: the first call makes the row.
\* coordinator/magnetar_coordinator/transactions/transactional_ids.py: create
CreateId == \E m \in sent :
    /\ m.kind = "init" /\ id.state = "NONE"
    /\ Take([id EXCEPT !.state = "EMPTY", !.producer = <<1, 0>>], m.instance) /\ OutcomesStay

\* Rule o: a copy of the last call gets the same answer, and older ones are refused.
\* coordinator/magnetar_coordinator/metadata/transactional_id.py: is_repeated_init
RepeatInit == \E m \in sent :
    /\ m.kind = "init" /\ id.token = m.instance /\ id.given = Current(id) /\ ~Has("tokens_ignored")
    /\ Store(id, Initialised(id, m.instance)) /\ sent' # sent /\ OutcomesStay

\* Rule o: another instance takes the id. It keeps an ongoing transaction if it says so, and aborts it else.
\* Then the call waits until the abort has ended.
\* coordinator/magnetar_coordinator/commands/transactional_id_commands.py: _take_over
\* coordinator/magnetar_coordinator/metadata/transactional_id.py: keep, take_over
TakeOver == \E m \in sent :
    /\ m.kind = "init"
    /\ (id.token # m.instance /\ m.instance \notin id.pastTokens) \/ Has("tokens_ignored")
    /\ \/ /\ id.state = "ONGOING" /\ m.keeps
          /\ Take([id EXCEPT !.next = IF Has("keep_loses_the_pair") THEN id.producer
                                      ELSE IF @ = NoPair THEN Raised(id.producer) ELSE RaisedToComplete(@)],
                  m.instance)
          /\ OutcomesStay
       \/ /\ id.state = "ONGOING" /\ ~m.keeps /\ ~Has("takeover_ends_nothing")
          /\ Store(Fixed(id, "abort"), {})
          /\ outcomes' = [outcomes EXCEPT ![id.txn] = "abort"] /\ UNCHANGED acted
       \/ /\ id.state \in Idle
          /\ Take([id EXCEPT !.state = "EMPTY", !.previous = NoPair, !.next = NoPair, !.txn = NoTxn,
                             !.producer = IF Has("takeover_raises_nothing") THEN Current(id) ELSE Raised(Current(id))],
                  m.instance)
          /\ OutcomesStay

\* Rule o: the newest pair alone begins, and not before it has completed what it kept.
\* coordinator/magnetar_coordinator/metadata/transactional_id.py: check_begin, begin
Begin == \E m \in sent :
    /\ m.kind = "begin" /\ m.pair = Current(id) /\ ~IsKept(id)
    /\ LET Begun(t) == {[kind |-> "begun", instance |-> m.instance, pair |-> m.pair, txn |-> t]} IN
       \/ /\ id.state = "ONGOING" /\ Store(id, Begun(id.txn)) /\ sent' # sent /\ OutcomesStay
       \/ /\ id.state \in Idle
          /\ \E t \in Txns :
               /\ outcomes[t] = "none" /\ \A earlier \in Txns : earlier < t => outcomes[earlier] # "none"
               /\ Store([id EXCEPT !.state = "ONGOING", !.previous = NoPair, !.txn = t], Begun(t))
               /\ outcomes' = [outcomes EXCEPT ![t] = "open"]
          /\ Act(m.instance)

\* Rules e and o: the newest pair ends, the one before it hears the outcome again, and an abort of nothing
\* raises the epoch.
\* coordinator/magnetar_coordinator/commands/transactional_id_commands.py: end_txn
\* coordinator/magnetar_coordinator/metadata/transactional_id.py: judge_end, fix, raise_epoch
End == \E m \in sent :
    /\ m.kind = "end"
    /\ LET Answer(row) == {[kind |-> "ended", to |-> m, pair |-> Current(row)]} IN
       \/ /\ (m.pair = Current(id) \/ Has("old_pairs_accepted")) /\ id.state = "ONGOING" /\ m.txn = id.txn
          /\ Store(Fixed(id, m.action), Answer(Fixed(id, m.action)))
          /\ outcomes' = [outcomes EXCEPT ![id.txn] = m.action] /\ Act(m.instance)
       \/ /\ m.pair = id.previous /\ ActionOf(id.state) # "none"
          /\ m.action = ActionOf(id.state) \/ Has("repeated_end_not_compared")
          /\ Store(id, Answer(id)) /\ sent' # sent /\ OutcomesStay
       \/ /\ m.pair = Current(id) /\ id.state \in Idle /\ m.action = "abort"
          /\ LET row == [id EXCEPT !.state = "COMPLETE_ABORT", !.producer = Raised(Current(id)),
                                   !.previous = Current(id), !.next = NoPair]
             IN Store(row, Answer(row)) /\ OutcomesStay

\* coordinator/magnetar_coordinator/metadata/transactional_id.py: complete
Complete ==
    /\ id.state \in Ending /\ ~(Has("aborts_are_not_completed") /\ id.state = "PREPARE_ABORT")
    /\ Store([id EXCEPT !.state = IF @ = "PREPARE_COMMIT" THEN "COMPLETE_COMMIT" ELSE "COMPLETE_ABORT",
                        !.producer = Current(id), !.next = NoPair], {})
    /\ OutcomesStay

\* Rule o: a transaction of two-phase commit does not expire, so this is a mistake.
\* coordinator/magnetar_coordinator/metadata/transaction.py: expires
Expire ==
    /\ Has("prepared_expires") /\ id.state = "ONGOING"
    /\ Store(Fixed(id, "abort"), {})
    /\ outcomes' = [outcomes EXCEPT ![id.txn] = "abort"] /\ UNCHANGED acted

-----------------------------------------------------------------------------
(* An instance follows the recipe: client/magnetar/dual_write/recipe.py *)

Go(i, state, messages) ==
    /\ instances' = [instances EXCEPT ![i] = state] /\ sent' = sent \cup messages
    /\ UNCHANGED <<id, producerIds, outcomes, superseded, acted>>
DatabaseStays == UNCHANGED <<database, stored>>
AskToEnd(i, action) ==
    {[kind |-> "end", instance |-> i, pair |-> instances[i].pair, txn |-> instances[i].txn, action |-> action]}

\* It takes the id, and keeps a transaction that its predecessor may have prepared.
\* client/magnetar/dual_write/recipe.py: start
Start(i) ==
    /\ instances[i].phase = "new"
    /\ Go(i, [instances[i] EXCEPT !.phase = "starting"],
          {[kind |-> "init", instance |-> i, keeps |-> Keeps /\ ~Has("recipe_does_not_keep")]})
    /\ DatabaseStays

HearPair(i) ==
    /\ instances[i].phase = "starting"
    /\ \E m \in sent : m.kind = "initialised" /\ m.instance = i
         /\ Go(i, [instances[i] EXCEPT !.phase = "claiming", !.pair = m.pair, !.txn = m.txn], {})
    /\ DatabaseStays

\* One transaction of the database makes it the owner of the row, and reads what was prepared last.
\* client/magnetar/dual_write/sql.py: claim
\* client/magnetar/dual_write/recipe.py: _complete
ClaimRow(i) ==
    LET me == instances[i]
        action == IF database.txn = me.txn \/ Has("completion_always_commits") THEN "commit" ELSE "abort"
    IN
    /\ me.phase = "claiming"
    /\ database' = [database EXCEPT !.owner = i] /\ UNCHANGED stored
    /\ IF me.txn # NoTxn /\ ~Has("recipe_completes_nothing") THEN Go(i, [me EXCEPT !.phase = "ending"], AskToEnd(i, action))
       ELSE Go(i, [me EXCEPT !.phase = "ready"], {})

\* client/magnetar/dual_write/recipe.py: begin
BeginUnit(i) ==
    /\ instances[i].phase = "ready"
    /\ Go(i, [instances[i] EXCEPT !.phase = "beginning"], {[kind |-> "begin", instance |-> i, pair |-> instances[i].pair]})
    /\ DatabaseStays

\* Its sends follow, and it prepares the transaction.
Prepare(i) ==
    /\ instances[i].phase = "beginning"
    /\ \E m \in sent : m.kind = "begun" /\ m.instance = i /\ m.pair = instances[i].pair
         /\ Go(i, [instances[i] EXCEPT !.phase = "prepared", !.txn = m.txn], {})
    /\ DatabaseStays

\* The database commits the data and the name of the prepared transaction together, if the row is still its
\* own. Then the transaction is committed.
\* client/magnetar/dual_write/sql.py: write
\* client/magnetar/dual_write/recipe.py: _write_state
StoreUnit(i) ==
    LET t == instances[i].txn IN
    /\ instances[i].phase = "prepared" /\ (database.owner = i \/ Has("row_has_no_owner"))
    /\ database' = [database EXCEPT !.txn = t] /\ stored' = stored \cup {t}
    /\ Go(i, [instances[i] EXCEPT !.phase = "ending"], AskToEnd(i, "commit"))

\* The database rolls back, and the transaction is aborted.
\* client/magnetar/dual_write/recipe.py: give_up
GiveUnitUp(i) ==
    /\ instances[i].phase = "prepared"
    /\ Go(i, [instances[i] EXCEPT !.phase = "ending"], AskToEnd(i, "abort")) /\ DatabaseStays

\* A program without the recipe asks for both ends.
AskToAbortAsWell(i) ==
    /\ BothAsked /\ instances[i].phase = "ending"
    /\ Go(i, instances[i], AskToEnd(i, "abort")) /\ sent' # sent /\ DatabaseStays

HearEnd(i) ==
    LET me == instances[i] IN
    /\ me.phase = "ending"
    /\ \E m \in sent : m.kind = "ended" /\ m.to.instance = i /\ m.to.pair = me.pair /\ m.to.txn = me.txn
         /\ Go(i, [me EXCEPT !.phase = "ready", !.pair = m.pair, !.txn = NoTxn], {})
    /\ DatabaseStays

-----------------------------------------------------------------------------
Next ==
    \/ CreateId \/ RepeatInit \/ TakeOver \/ Begin \/ End \/ Complete \/ Expire
    \/ \E i \in Instances :
           \/ Start(i) \/ HearPair(i) \/ ClaimRow(i) \/ BeginUnit(i) \/ Prepare(i)
           \/ StoreUnit(i) \/ GiveUnitUp(i) \/ AskToAbortAsWell(i) \/ HearEnd(i)

Spec == Init /\ [][Next]_vars

(*
  What goes on: an instance may stop at any time with a unit of work, but a call that was made is repeated
  until it is answered, and one that has taken the id completes what it kept.
*)
Fairness ==
    \* A call that comes while the last transaction ends is parked; when it waited for too long, it is refused,
    \* and the client asks again.
    \* coordinator/magnetar_coordinator/commands/transactional_id_commands.py: _take_over, _park
    /\ WF_vars(CreateId) /\ WF_vars(RepeatInit)
    /\ Has("takeover_is_not_repeated") \/ WF_vars(TakeOver)
    /\ WF_vars(Begin) /\ WF_vars(End)
    \* Ends go on until all participants have answered: module Commit.
    \* coordinator/magnetar_coordinator/runtime.py: on_finished
    /\ WF_vars(Complete)
    \* client/magnetar/dual_write/recipe.py: start, _complete
    /\ \A i \in Instances : WF_vars(HearPair(i)) /\ WF_vars(ClaimRow(i))

LiveSpec == Spec /\ Fairness
Symmetry == Permutations(Instances)

-----------------------------------------------------------------------------
(* The invariants *)

\* Rule o: the database and the topics agree on each outcome.
DatabaseAgrees == \A t \in Txns : /\ t \in stored => outcomes[t] # "abort"
                                  /\ outcomes[t] = "commit" => t \in stored

\* Rule o: only the newest instance acts.
OnlyNewestActs == \A action \in acted : ~action[2]

\* Invariant 7, rule e: an answer tells what happened.
AnswersAgree == \A m \in sent : m.kind = "ended" =>
    IF m.to.action = "commit" THEN outcomes[m.to.txn] = "commit"
    ELSE m.to.txn # NoTxn => outcomes[m.to.txn] # "commit"

\* Rule o: no two instances have the same pair.
PairsAreUnique == \A m, n \in sent :
    (m.kind = "initialised" /\ n.kind = "initialised" /\ m.pair = n.pair) => m.instance = n.instance

\* coordinator/magnetar_coordinator/metadata/transactional_id.py: check
RowIsSound == id.state # "NONE" =>
    /\ id.producer # NoPair
    /\ id.state = "EMPTY" => id.previous = NoPair /\ id.next = NoPair
    /\ id.state \in {"COMPLETE_COMMIT", "COMPLETE_ABORT"} => id.next = NoPair
    /\ id.state \in Ending => id.previous # NoPair
    /\ id.state \in {"ONGOING"} \cup Ending => id.txn # NoTxn
    /\ id.producer[2] <= EpochMax /\ id.next[2] <= EpochMax

(* Progress, promise F *)

\* An instance hears that it has the id, or another one has taken the id after it.
TakeoversAreAnswered == \A i \in Instances :
    (instances[i].phase = "starting") ~> (instances[i].phase # "starting" \/ i \in id.pastTokens)

\* An end is carried out.
EndsComplete == (id.state \in Ending) ~> (id.state \in Idle)

\* A kept transaction ends: its newest instance completes it.
KeptEnds == IsKept(id) ~> ~IsKept(id)

(* Situations that have to arise: TLC has to refute that they never do. *)
NeverRotates == producerIds < 2
NeverWaits == ~(id.state = "PREPARE_ABORT" /\ \E i \in Instances : instances[i].phase = "starting")
NeverKept == ~IsKept(id)
NeverCommits == \A t \in Txns : outcomes[t] # "commit"

\* Keeps searches finite where copies of InitProducer are taken for new ones.
FewProducerIds == producerIds <= 3
=============================================================================
