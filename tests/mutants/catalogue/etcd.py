"""Mistakes in the directory of a cluster that etcd keeps."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_DIRECTORY = "cluster/magnetar_cluster/etcd_directory.py"
_CLIENT = "cluster/magnetar_cluster/etcd_client.py"
_WATCH = "cluster/magnetar_cluster/etcd_watch.py"
_ROWS = "cluster/magnetar_cluster/etcd_rows.py"

MUTANTS = (
    Mutant(
        name="claim-without-lease",
        file=_DIRECTORY,
        old="        answer = await self._put_or_read(_created_at(key, 0), value, lease)",
        new="        answer = await self._put_or_read(_created_at(key, 0), value, 0)",
        mistake="A shard stays with a member that is gone.",
    ),
    Mutant(
        name="any-claim-is-mine",
        file=_DIRECTORY,
        old="        if row is None or row.lease != lease or row.value != value:",
        new="        if row is None or row.value != value:",
        mistake="A member that was restarted takes its former lease's ownership for its own.",
    ),
    Mutant(
        name="mark-of-a-former-owner",
        file=_DIRECTORY,
        old="                compare=[_created_at(self._keys.owner(shard), epoch)],",
        new="                compare=[],",
        mistake="A former owner, or a person's command, overwrites the mark of the present owner.",
    ),
    Mutant(
        name="marks-are-news",
        file=_ROWS,
        old='        self.end = self.prefix + b"written/"',
        new='        self.end = self.prefix[:-1] + b"0"',
        mistake="Every member hears each second of every shard that is written to.",
    ),
    Mutant(
        name="release-of-any-epoch",
        file=_DIRECTORY,
        old="                compare=[_created_at(key, epoch)],",
        new="                compare=[],",
        mistake="A release that comes late deletes the ownership of the next one.",
    ),
    Mutant(
        name="name-of-any-lease",
        file=_DIRECTORY,
        old="            elif row.lease != lease:\n                return False\n",
        new="",
        mistake="A member takes the name of one that is alive.",
    ),
    Mutant(
        name="lease-rounded-down",
        file=_DIRECTORY,
        old="        ttl_s = -(-duration_ms // 1_000)",
        new="        ttl_s = max(1, duration_ms // 1_000)",
        mistake="A lease ends while its member still may speak.",
    ),
    Mutant(
        name="shorter-lease-taken",
        file=_DIRECTORY,
        old="        if answer.error or not answer.ID or ttl_s > answer.TTL:",
        new="        if answer.error or not answer.ID:",
        mistake="A lease that etcd made shorter ends while its member still may speak.",
    ),
    Mutant(
        name="wish-over-anything",
        file=_DIRECTORY,
        old="pb.TxnRequest(compare=[base], success=[change, note])",
        new="pb.TxnRequest(compare=[], success=[change, note])",
        mistake="A drain that comes late is stronger than the one that took it back.",
    ),
    Mutant(
        name="backup-unnoticed",
        file=_DIRECTORY,
        old="                self._client.saw(watch.revision)\n",
        new="",
        mistake="Views go back when etcd was restored from a backup, and epochs are given twice.",
    ),
    Mutant(
        name="backup-renews",
        file=_CLIENT,
        old="            read = await self._ask_rows(endpoint, endpoint.range, probe)\n",
        new="            read = await self._ask(endpoint, endpoint.range, probe)\n",
        mistake="A lease of the backup is renewed, and its member speaks for what others have.",
    ),
    Mutant(
        name="one-strange-endpoint-ends-all",
        file=_CLIENT,
        old="            if 2 * agreed > len(self._endpoints):",
        new="            if agreed:",
        mistake="An endpoint that was named by mistake ends all servers.",
    ),
    Mutant(
        name="the-only-endpoint-is-a-strange-one",
        file=_CLIENT,
        old="            if 2 * agreed > len(self._endpoints):",
        new="            if agreed > 1 and 2 * agreed > len(self._endpoints):",
        mistake="Servers wait for ever for an etcd that was restored, if one endpoint is named.",
    ),
    Mutant(
        name="any-term-renews",
        file=_CLIENT,
        old="            if read.header.raft_term != term:",
        new="            if not read.header.raft_term:",
        mistake="A former leader of etcd renews a lease that its successor has ended.",
    ),
    Mutant(
        name="zero-seconds-renew",
        file=_CLIENT,
        old="            if ttl_s > 0:",
        new="            if ttl_s >= 0:",
        mistake="A member goes on with a lease that has ended.",
    ),
    Mutant(
        name="unknown-lease-is-ended",
        file=_CLIENT,
        old="        for _ in range(2):",
        new="        for _ in range(1):",
        mistake="A member gives up all shards because a new leader of etcd is not ready yet.",
    ),
    Mutant(
        name="renewal-of-any-lease",
        file=_CLIENT,
        old="        if not isinstance(answer, pb.LeaseKeepAliveResponse) or lease != answer.ID:",
        new="        if not isinstance(answer, pb.LeaseKeepAliveResponse):",
        mistake="The answer about one lease is taken for that about another.",
    ),
    Mutant(
        name="one-endpoint-for-ever",
        file=_CLIENT,
        old="            self.leave(endpoint.address)\n",
        new="",
        mistake="A member of etcd that is away takes all who asked it with it.",
    ),
    Mutant(
        name="any-etcd-cluster",
        file=_CLIENT,
        old="        if self._cluster_id and found != self._cluster_id:",
        new="        if not found:",
        mistake="Endpoints of two etcd clusters give each shard two owners.",
    ),
    Mutant(
        name="token-for-ever",
        file=_CLIENT,
        old='                    self._token = ""\n',
        new="",
        mistake="Servers are shut out when etcd has forgotten their token.",
    ),
    Mutant(
        name="watch-begins-late",
        file=_WATCH,
        old="start_revision=self.revision + 1,",
        new="start_revision=0,",
        mistake="What changes between the list and the watch is never seen.",
    ),
    Mutant(
        name="watch-begins-early",
        file=_WATCH,
        old="start_revision=self.revision + 1,",
        new="start_revision=self.revision,",
        mistake="The last change of the list comes twice.",
    ),
    Mutant(
        name="watch-without-signs-of-life",
        file=_WATCH,
        old="                await self._call.write(_SIGN_OF_LIFE)\n",
        new="",
        mistake="A watch breaks whenever nothing changes for a while.",
    ),
    Mutant(
        name="forgotten-revisions-passed-over",
        file=_WATCH,
        old="        if response.compact_revision:",
        new="        if response.compact_revision < 0:",
        mistake="A watch that etcd can no longer serve looks like one in which nothing changes.",
    ),
    Mutant(
        name="overwritten-ownership-counts",
        file=_ROWS,
        old="                if row.version != 1:",
        new="                if row.version < 1:",
        mistake="An ownership that somebody wrote over has a new owner under the old epoch.",
    ),
    Mutant(
        name="damaged-row-says-what-it-said",
        file=_ROWS,
        old="        self.delete(row.key)\n        table, kind, rest",
        new="        table, kind, rest",
        mistake="A row that was damaged goes on as it was before.",
    ),
    Mutant(
        name="views-change-afterwards",
        file=_ROWS,
        old="            pins=dict(self._pins),",
        new="            pins=self._pins,",
        mistake="A view shows half of what came after it.",
    ),
)
