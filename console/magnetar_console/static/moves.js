// Drains a server, ends that, or rebalances, after the viewer has seen which shards will move.

import { confirm } from './confirm.js';
import { element } from './dom.js';
import { counted } from './format.js';

const CONSEQUENCES = {
  drain: 'It gets no shards until the drain is ended, also when it is started anew.',
  'end the drain of': 'It may have shards again.',
  rebalance: 'All pins of shards are taken back, and each shard moves to where it belongs.',
};

function describe(what, told) {
  const moves = element('ul', { class: 'moves' });
  for (const one of told.moves) {
    moves.append(element('li', {}, `${one.shard}: from ${one.before || 'no server'} to ${one.after}`));
  }
  return [
    element('p', {}, CONSEQUENCES[what]),
    element('p', {}, told.moves.length ? `${counted(told.moves.length, 'shard')} will move, one at a time; its clients wait meanwhile:` : 'No shard will move.'),
    moves,
  ];
}

export function confirmMoves(what, kind = '', member = '') {
  const title = what === 'rebalance' ? 'Rebalance the cluster?' : `${what[0].toUpperCase()}${what.slice(1)} ${kind} ${member}?`;
  const yes = { drain: 'Drain it', 'end the drain of': 'End the drain', rebalance: 'Rebalance' }[what];
  return confirm({ title, yes, body: { what, kind, member }, foretell: '/plan', change: '/change', describe: (told) => describe(what, told) });
}
