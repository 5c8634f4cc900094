"""The topics of a cluster: its first broker keeps them, the other brokers follow it.

The first broker of the list has the *keeper*, each other broker a *follower*. `broker.py` makes one
of them, and uses both in the same way: it has a guard, handlers, and an opinion of the stores of
coordinators. A broker that is alone has a keeper without followers.

    client          follower (broker 2)                          keeper (broker 1)
      |                 |---- FollowDirectory(token, revision) ----->|  rows: is the store known?
      |                 |<--- topics, incarnations, revision --------|  (or the store is refused)
      |                 |  writes its copy, with its partitions      |
      |                 |---- FollowDirectory(revision) ------------>|  kept until something changes
      |- CreateTopic -->|                                            |
      |                 |---- CreateTopic -------------------------->|  rows: is it a late copy?
      |                 |<--- what changed --------------------------|  tells every follower
      |                 |---- FollowDirectory(new revision) -------->|  linked followers have it, or
      |                 |<--- CreateTopic's answer ------------------|  a second has passed
      |                 |---- FollowDirectory(at once) ------------->|
      |                 |<--- nothing new ---------------------------|
      |<- answer -------|  the copy has what was answered            |
      |                 |                                            |
      |- Read(t) ------>|  t is not known: the command waits         |
      |                 |---- FollowDirectory(at once) ------------->|
      |                 |<--- what changed, or nothing --------------|
      |<- answer -------|  handles the command again: now it has     |
      |                 |  t, or t does not exist (Topics.complete)  |

`keeper.py`     creates, alters and deletes topics, gives out incarnations, and tells followers. A
                deletion asks the brokers of the topic's partitions first.
`growths.py`    asks them for its subscriptions, before it gets partitions.
`follower.py`   asks, writes the copy, passes commands on, and lets commands wait for news. It takes
                no directory that lacks what the copy has (`topics/topic_directory.py` decides).
`guards.py`     refuse all commands while the broker's own store may be the wrong one: empty at the
                first broker, not accepted at a follower.
`rows.py`       what the keeper remembers over restarts: the stores of the others, and past calls.
`peer.py`       the link from a broker to another one.

Source: docs/design/0008-cluster.md, The directory.
"""
