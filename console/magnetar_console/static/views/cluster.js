import { byId, element, showFacts, showRows, soft, tag } from '../dom.js';
import { clockText, count, duration, timeText } from '../format.js';
import { age, Live } from '../live.js';
import { confirmAction } from '../confirm.js';

const number = (one) => Number(one.name.split('-').at(-1)) || 0;

function serverState(one) {
  const more = [];
  if (one.draining) more.push(' ', tag('draining', 'warn'));
  if (one.leaving) more.push(' ', tag('leaving', 'warn'));
  if (one.refused.length) more.push(' ', tag(`could not open ${one.refused.join(', ')}`, 'bad'));
  if (one.answers === null) return [tag('asking'), ...more];
  if (one.answers) return [tag('answers', 'good'), ...more];
  return [tag('away', 'bad'), soft(one.reason), ...more];
}

// The age of a lease grows until it is renewed; at its end others get the shards.
function lease(one) {
  if (!one) return soft('–');
  return [age(one.renewed_ms), soft(`silent at ${duration(one.silent_age_ms)}, over at ${duration(one.duration_ms)}`)];
}

function actions(one) {
  if (!one.member) return soft('–');
  const what = one.draining ? 'end the drain of' : 'drain';
  const button = element('button', { class: 'quiet', 'data-focus': 'drain', 'aria-label': `${what} ${one.member}` }, one.draining ? 'End the drain…' : 'Drain…');
  button.onclick = () => confirmAction('move', { what, kind: one.kind, member: one.member });
  return button;
}

function words(one) {
  switch (one.what) {
    case 'away': return [tag('away', 'bad'), ` ${one.kind} at ${one.server} does not answer`];
    case 'draining': return [tag('draining', 'warn'), ` ${one.kind} ${one.member} gives up its shards`];
    case 'takes shards': return [tag('takes shards', 'good'), ` ${one.kind} ${one.member} may have shards again`];
    case 'back': return [tag('back', 'good'), ` ${one.kind} at ${one.server} answers again`];
    default: return [tag('moved'), ` ${one.shard}: from ${one.before || 'no server'} to ${one.after || 'no server'}${one.epoch === null ? '' : `, epoch ${count(one.epoch)}`}`];
  }
}

// What a shard does, and where it goes.
function place(one) {
  const parts = [];
  if (one.phase && one.phase !== 'serving') parts.push(tag(one.phase.replace('_', ' '), 'warn'), ' ');
  if (one.moves_to) parts.push(tag(`moves to ${one.moves_to}`, 'warn'), ' ');
  if (one.pinned_to) parts.push(`pinned to ${one.pinned_to}`);
  return parts.length ? parts : soft(one.phase || '–');
}

const allowed = document.body.dataset.actions === 'yes';
const rebalanceButton = document.getElementById('rebalance');
if (rebalanceButton) rebalanceButton.onclick = () => confirmAction('move', { what: 'rebalance' });

new Live(document.body.dataset.events, (view) => {
  const [cluster] = view.rows('cluster');
  if (!cluster) return;
  const leases = new Map(view.rows('leases').map((one) => [one.server, one]));
  const servers = view.rows('servers').map((one) => ({ ...one, lease: leases.get(`${one.kind}/${one.address}`) })).sort((a, b) => (a.kind + a.address < b.kind + b.address ? -1 : 1));
  const away = servers.filter((one) => one.answers === false).length;
  showFacts('facts', [
    ['Servers', away ? `${count(servers.length - away)} answer, ${count(away)} away` : `${count(servers.length)}, all answer`],
    ['Cluster', cluster.id || 'without an id'],
    ['Version', cluster.version || 'not known'],
    ['Membership', `version ${count(cluster.membership_version)}`],
  ]);
  showRows('servers', servers, (one) => `${one.kind} ${one.address}`, (one) => [
    [element('span', { class: 'id' }, one.address), one.member && one.member !== one.address ? soft(one.member) : ''], one.kind, serverState(one),
    one.since_ms ? [age(one.since_ms), soft(clockText(one.since_ms))] : '–',
    ...(cluster.moves ? [lease(one.lease)] : ['–']),
    one.shards.length ? one.shards.join(', ') : soft('none'),
    ...(allowed ? [actions(one)] : []),
  ]);
  const rebalance = document.getElementById('rebalance');
  if (rebalance) rebalance.hidden = !cluster.tells_members;
  byId('shards-lead').textContent = cluster.moves
    ? 'When a server dies, others take its shards. Each ownership has an epoch of its own, so that a late server is refused. A server keeps its shards while it renews its lease: it is silent when that is too old, and others get the shards when it is over.'
    : 'Each server keeps its shard for good.';
  const shards = view.rows('shards').sort((a, b) => (a.kind === b.kind ? number(a) - number(b) : a.kind < b.kind ? -1 : 1));
  showRows('shards', shards, (one) => one.name, (one) => [
    one.name,
    one.server ? element('span', { class: 'id' }, one.server) : tag('no server', 'bad'),
    count(one.epoch),
    place(one),
    one.since_ms ? age(one.since_ms) : soft('before the console began to watch'),
  ]);
  const events = view.rows('events').sort((a, b) => b.number - a.number);
  showRows('events', events, (one) => String(one.number), (one) => [timeText(one.at_ms), words(one)]);
});
