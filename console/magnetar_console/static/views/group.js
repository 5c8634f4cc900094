import { byId, showFacts, showRows, soft, tag, txnLink } from '../dom.js';
import { count, counted, duration } from '../format.js';
import { Live } from '../live.js';
import { names, separated, topicLink } from '../parts.js';

const STATES = { EMPTY: ['no members', ''], STABLE: ['stable', 'good'], REBALANCING: ['rebalancing', 'warn'] };

function owner(one) {
  if (!one.member) return tag('none', 'warn');
  return [one.client, soft(one.member), one.next ? [' ', tag(`moves to ${one.next}`, 'warn')] : ''].flat();
}

new Live(document.body.dataset.events, (view) => {
  const [group] = view.rows('group');
  if (!group) return;
  byId('state').replaceChildren(tag(...STATES[group.state]));
  showFacts('facts', [
    ['Backlog', counted(group.lag, 'message')],
    ['Generation', count(group.generation)],
    ['Acks in prepared transactions', group.two_phase ? 'allowed' : 'not allowed'],
  ]);
  const members = view.rows('members').sort((a, b) => (a.id < b.id ? -1 : 1));
  showRows('members', members, (one) => one.id, (one) => [
    [one.client || one.id, soft(one.instance_id ? `${one.id}, instance ${one.instance_id}` : one.id)],
    names(one.topics), count(one.partitions), count(one.lag),
    `${count(one.silent_s)} s ago, of ${duration(one.session_timeout_ms)}`,
  ]);
  const partitions = view.rows('partitions').sort((a, b) => (a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1));
  showRows('partitions', partitions, (one) => `${one.topic}/${one.partition}`, (one) => [
    [topicLink(one.topic), ` / ${one.partition}`], owner(one), count(one.generation), count(one.lag),
    count(one.pending), one.awaited.length ? separated(one.awaited.map(txnLink)) : '–',
  ]);
});
