import { byId, element, showFacts, showRows, soft, tag } from '../dom.js';
import { clockText, count, timeText } from '../format.js';
import { age, Live } from '../live.js';

const number = (one) => Number(one.name.split('-').at(-1)) || 0;

function serverState(one) {
  if (one.answers === null) return tag('asking');
  if (one.answers) return tag('answers', 'good');
  return [tag('away', 'bad'), soft(one.reason)];
}

function words(one) {
  switch (one.what) {
    case 'away': return [tag('away', 'bad'), ` ${one.kind} at ${one.server} does not answer`];
    case 'back': return [tag('back', 'good'), ` ${one.kind} at ${one.server} answers again`];
    default: return [tag('moved'), ` ${one.shard}: from ${one.before || 'no server'} to ${one.after || 'no server'}${one.epoch === null ? '' : `, epoch ${count(one.epoch)}`}`];
  }
}

new Live(document.body.dataset.events, (view) => {
  const [cluster] = view.rows('cluster');
  if (!cluster) return;
  const servers = view.rows('servers').sort((a, b) => (a.kind + a.address < b.kind + b.address ? -1 : 1));
  const away = servers.filter((one) => one.answers === false).length;
  showFacts('facts', [
    ['Servers', away ? `${count(servers.length - away)} answer, ${count(away)} away` : `${count(servers.length)}, all answer`],
    ['Cluster', cluster.id || 'without an id'],
    ['Version', cluster.version || 'not known'],
    ['Membership', `version ${count(cluster.membership_version)}`],
  ]);
  showRows('servers', servers, (one) => `${one.kind} ${one.address}`, (one) => [
    element('span', { class: 'id' }, one.address), one.kind, serverState(one),
    one.since_ms ? [age(one.since_ms), soft(clockText(one.since_ms))] : '–',
    one.shards.length ? one.shards.join(', ') : soft('none'),
  ]);
  byId('shards-lead').textContent = cluster.moves
    ? 'When a server dies, others take its shards. Each ownership has an epoch of its own, so that a late server is refused. Brokers do not tell the leases: magnetar cluster shards does.'
    : 'Each server keeps its shard for good.';
  const shards = view.rows('shards').sort((a, b) => (a.kind === b.kind ? number(a) - number(b) : a.kind < b.kind ? -1 : 1));
  showRows('shards', shards, (one) => one.name, (one) => [
    one.name,
    one.server ? element('span', { class: 'id' }, one.server) : tag('no server', 'bad'),
    count(one.epoch),
    one.since_ms ? age(one.since_ms) : soft('before the console began to watch'),
  ]);
  const events = view.rows('events').sort((a, b) => b.number - a.number);
  showRows('events', events, (one) => String(one.number), (one) => [timeText(one.at_ms), words(one)]);
});
