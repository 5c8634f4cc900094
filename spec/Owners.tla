------------------------------- MODULE Owners -------------------------------
(*
  A shard that moves between members: docs/design/0009-owners.md, promises 1 to 4. Above each action
  stands the code that it stands for.

  The directory says who owns the shard. Each ownership has an epoch, and ends with the owner's lease. The
  store says what the shard contains, and takes writes of the epoch alone that opened it last. A member
  speaks for two thirds of a lease, counted from when it sent the last renewal that was answered. So it is
  silent before the directory ends the lease, even if its clock is slower than the directory's.

  A member may hang at any moment, for any time, and go on: no action has to happen, while time
  goes on. The shard's content is a number that each write raises; an answer tells the number.
  `Mistake` names what is planted, or is "none".
*)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
    Members,
    LeaseTime,     \* after which the directory ends a lease
    SpeakTime,     \* for which a member speaks after it sent a renewal
    ClockError,    \* how much too early the directory may end a lease
    TimeMax,       \* when a history ends
    ClaimsMax,     \* how often the shard may get an owner
    LeasesMax,     \* how many leases a member may get
    ValueMax,      \* how often an owner may decide
    Mistake

VARIABLES
    now,
    directory,     \* the owner's row, and the leases
    store,         \* the epoch that may write, and the content
    members,
    told           \* what callers have heard; nothing in the protocol reads this
vars == <<now, directory, store, members, told>>

Nobody == "nobody"
\* The member that goes on for ever, where progress is checked: the others may hang or die.
Survivor == CHOOSE m \in Members : TRUE
Has(mistake) == Mistake = mistake

Without == [phase |-> "without", epoch |-> 0, value |-> 0, durable |-> 0]
Init ==
    /\ now = 0
    /\ directory = [owner |-> Nobody, epoch |-> 0, claims |-> 0,
                    leases |-> [m \in Members |-> [number |-> 0, alive |-> FALSE, renewed |-> 0]]]
    /\ store = [epoch |-> 0, value |-> 0]
    /\ members = [m \in Members |-> [shard |-> Without, lease |-> 0, silentAt |-> 0]]
    /\ told = [highest |-> 0, wentBack |-> FALSE, byFormerOwner |-> FALSE, epochs |-> {}]

Tick == now < TimeMax /\ now' = now + 1 /\ UNCHANGED <<directory, store, members, told>>

-----------------------------------------------------------------------------
(* Leases *)

Speaking == IF Has("speaks_for_whole_lease") THEN LeaseTime ELSE SpeakTime
MaySpeak(m) == now < members[m].silentAt \/ Has("silent_members_answer")

\* A member without the shard begins a new lease.
\* cluster/magnetar_cluster/hosting/member_lease.py: _grant
\* cluster/magnetar_cluster/hosting/lease.py: begun
Grant(m) ==
    LET lease == directory.leases[m] IN
    /\ members[m].shard.phase = "without" /\ ~lease.alive /\ lease.number < LeasesMax
    /\ directory' = [directory EXCEPT !.leases[m] = [number |-> lease.number + 1, alive |-> TRUE, renewed |-> now]]
    /\ members' = [members EXCEPT ![m].lease = lease.number + 1, ![m].silentAt = now + Speaking]
    /\ UNCHANGED <<now, store, told>>

\* A renewal reaches the directory. It was sent now: had it been sent earlier, the member would be silent
\* earlier, too.
\* cluster/magnetar_cluster/directory/cluster_directory_state.py: renew
Renew(m) ==
    LET lease == directory.leases[m] IN
    /\ lease.alive /\ lease.number = members[m].lease /\ lease.renewed < now
    /\ directory' = [directory EXCEPT !.leases[m].renewed = now]
    /\ UNCHANGED <<now, store, members, told>>

\* The answer to a renewal arrives, at any later time.
\* cluster/magnetar_cluster/hosting/lease.py: renewed
HearRenewal(m) ==
    LET from == IF Has("lease_counts_from_answer") THEN now ELSE directory.leases[m].renewed IN
    /\ members[m].lease = directory.leases[m].number /\ from + Speaking > members[m].silentAt
    /\ members' = [members EXCEPT ![m].silentAt = from + Speaking]
    /\ UNCHANGED <<now, directory, store, told>>

\* The lease ends, and with it the owner's row. The directory may be late.
\* cluster/magnetar_cluster/directory/cluster_directory_state.py: expire, _end
EndLease(m) ==
    /\ directory.leases[m].alive /\ directory.leases[m].renewed + LeaseTime <= now + ClockError
    /\ directory' = [directory EXCEPT !.leases[m].alive = FALSE,
                                      !.owner = IF @ = m /\ ~Has("claims_outlive_leases") THEN Nobody ELSE @]
    /\ UNCHANGED <<now, store, members, told>>

-----------------------------------------------------------------------------
(* Owners *)

\* Promise 1: each ownership has an epoch of its own.
\* cluster/magnetar_cluster/directory/cluster_directory_state.py: claim
Claim(m) ==
    LET epoch == IF Has("epochs_repeat") THEN 1 ELSE directory.claims + 1 IN
    /\ members[m].shard.phase = "without" /\ directory.owner = Nobody /\ directory.claims < ClaimsMax
    /\ ~(Has("given_back_is_not_claimed") /\ directory.claims > 0)
    /\ ~(Has("dead_members_are_wished") /\ m = Survivor)
    /\ directory.leases[m].alive /\ directory.leases[m].number = members[m].lease
    /\ directory' = [directory EXCEPT !.owner = m, !.epoch = epoch, !.claims = @ + 1]
    /\ members' = [members EXCEPT ![m].shard = [Without EXCEPT !.phase = "opening", !.epoch = epoch]]
    /\ UNCHANGED <<now, store, told>>

\* Promise 1: the opening fences the last owner. It may come late: then it fences the next owner, whose writes
\* fail. The code does not begin an opening when its lease has ended.
\* cluster/magnetar_cluster/hosting/shard_attempts.py: _open
Open(m) ==
    /\ members[m].shard.phase = "opening"
    /\ store' = [store EXCEPT !.epoch = members[m].shard.epoch]
    /\ members' = [members EXCEPT ![m].shard.phase = "serving", ![m].shard.value = store.value,
                                  ![m].shard.durable = store.value]
    /\ UNCHANGED <<now, directory, told>>

IsOwner(m) == directory.owner = m /\ directory.epoch = members[m].shard.epoch

\* A member learns at some time that the shard is not its own any more.
\* cluster/magnetar_cluster/hosting/host_state.py: lease_ended, saw
Learn(m) ==
    /\ members[m].shard.phase # "without" /\ ~IsOwner(m)
    /\ members' = [members EXCEPT ![m].shard = Without]
    /\ UNCHANGED <<now, directory, store, told>>

\* The store has another owner: the shard ends by itself, and gives its row back. Then the member claims anew.
\* cluster/magnetar_cluster/hosting/host_state.py: failed
LetGo(m) ==
    /\ members[m].shard.phase = "serving" /\ store.epoch # members[m].shard.epoch
    /\ ~Has("fenced_owner_keeps_the_shard")
    /\ members' = [members EXCEPT ![m].shard.phase = "releasing"]
    /\ UNCHANGED <<now, directory, store, told>>

\* An owner hands the shard over: it closes the store, when all is durable.
\* cluster/magnetar_cluster/hosting/shard_attempts.py: _close
Close(m) ==
    /\ members[m].shard.phase = "serving" /\ members[m].shard.durable = members[m].shard.value
    /\ members' = [members EXCEPT ![m].shard.phase = "releasing"]
    /\ UNCHANGED <<now, directory, store, told>>

\* Then it deletes its row.
\* cluster/magnetar_cluster/hosting/shard_attempts.py: _release
\* cluster/magnetar_cluster/directory/cluster_directory_state.py: release
Release(m) ==
    LET isFirst == members[m].shard.phase = "serving" /\ Has("released_before_closed") IN
    /\ members[m].shard.phase = "releasing" \/ isFirst
    /\ IsOwner(m)
    /\ directory' = [directory EXCEPT !.owner = Nobody]
    /\ members' = IF isFirst THEN members ELSE [members EXCEPT ![m].shard = Without]
    /\ UNCHANGED <<now, store, told>>

-----------------------------------------------------------------------------
(* The shard: it decides, writes and answers. Each of them may be late. *)

Decide(m) ==
    /\ members[m].shard.phase = "serving" /\ members[m].shard.value < ValueMax
    /\ members' = [members EXCEPT ![m].shard.value = @ + 1]
    /\ UNCHANGED <<now, directory, store, told>>

\* Promise 1: the store takes rows of the last epoch only.
\* storage/magnetar_storage/group_commit.py: GroupCommit
Write(m) ==
    LET shard == members[m].shard IN
    /\ shard.phase = "serving" /\ shard.durable # shard.value
    /\ store.epoch = shard.epoch \/ Has("store_does_not_fence")
    /\ store' = [store EXCEPT !.value = shard.value]
    /\ members' = [members EXCEPT ![m].shard.durable = shard.value]
    /\ UNCHANGED <<now, directory, told>>

\* Promise 2, rule a: an acknowledgement, a read or a refusal leaves while the lease lets it, and tells what is
\* durable.
\* cluster/magnetar_cluster/hosting/host_state.py: speaks
Answer(m) ==
    LET shard == members[m].shard
        value == IF Has("answers_before_durable") THEN shard.value ELSE shard.durable
    IN
    /\ shard.phase = "serving" /\ MaySpeak(m)
    /\ told' = [highest |-> IF value > told.highest THEN value ELSE told.highest,
                wentBack |-> told.wentBack \/ value < told.highest,
                byFormerOwner |-> told.byFormerOwner \/ ~IsOwner(m),
                epochs |-> told.epochs \cup {shard.epoch}]
    /\ told' # told
    /\ UNCHANGED <<now, directory, store, members>>

-----------------------------------------------------------------------------
Next ==
    \/ Tick
    \/ \E m \in Members :
           \/ Grant(m) \/ Renew(m) \/ HearRenewal(m) \/ EndLease(m)
           \/ Claim(m) \/ Open(m) \/ Learn(m) \/ LetGo(m) \/ Close(m) \/ Release(m)
           \/ Decide(m) \/ Write(m) \/ Answer(m)

Spec == Init /\ [][Next]_vars

(* What goes on: time, the directory, and one member. All others may stop at any moment, for ever. *)
Fairness ==
    /\ WF_vars(Tick)
    \* cluster/magnetar_cluster/directory/cluster_directory_state.py: expire
    /\ \A m \in Members : WF_vars(EndLease(m))
    \* cluster/magnetar_cluster/hosting/member_lease.py: _run, _grant
    /\ Has("lost_lease_is_not_replaced") \/ WF_vars(Grant(Survivor))
    \* With each view, and when a pause is over.
    \* cluster/magnetar_cluster/hosting/host.py: _saw, _step
    /\ WF_vars(Claim(Survivor)) /\ WF_vars(Learn(Survivor)) /\ WF_vars(LetGo(Survivor))
    \* cluster/magnetar_cluster/hosting/shard_attempts.py: _open, _release
    /\ WF_vars(Open(Survivor)) /\ WF_vars(Release(Survivor))

LiveSpec == Spec /\ Fairness
Symmetry == Permutations(Members)

-----------------------------------------------------------------------------
(* The invariants *)

\* Invariant 2, promise 4: what was told is durable.
NothingIsLost == told.highest <= store.value

\* Promise 4: no caller hears less than another one heard before.
NothingIsStale == ~told.wentBack

\* Promise 2: a server that lost the shard is silent.
OnlyOwnerSpeaks == ~told.byFormerOwner

(* Progress, promise E. A history ends when the bounds on claims or leases are reached. *)

IsExhausted ==
    \/ directory.claims = ClaimsMax
    \/ directory.leases[Survivor].number = LeasesMax /\ ~directory.leases[Survivor].alive

\* A shard without an owner gets one.
ShardsAreClaimed == (directory.owner = Nobody) ~> (directory.owner # Nobody \/ IsExhausted)

\* A member that is silent for a lease loses the shard.
SilentOwnersLoseTheShard == \A m \in Members :
    (directory.owner = m /\ directory.leases[m].renewed + LeaseTime <= now)
        ~> (directory.owner # m \/ directory.leases[m].renewed + LeaseTime > now)

\* An owner that lives serves with a store that takes its rows, or the shard is not its own any more.
OwnersServe == (directory.owner = Survivor)
    ~> \/ directory.owner # Survivor
       \/ members[Survivor].shard.phase = "serving" /\ store.epoch = members[Survivor].shard.epoch

\* A late opening of another member fences the owner. It does not stay so.
FencedOwnersLetGo == (members[Survivor].shard.phase = "serving" /\ store.epoch # members[Survivor].shard.epoch)
    ~> (members[Survivor].shard.phase # "serving")

(* Situations that have to arise: TLC has to refute that they never do. *)
NeverFenced == ~(/\ IsOwner(Survivor) /\ members[Survivor].shard.phase = "serving"
                 /\ store.epoch # members[Survivor].shard.epoch)
NeverMoves == Cardinality(told.epochs) < 2
NeverTaken == ~\E m \in Members : members[m].shard.phase = "serving" /\ ~IsOwner(m)
=============================================================================
