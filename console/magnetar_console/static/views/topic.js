import { byId, element, link, showFacts, showRows, txnLink } from '../dom.js';
import { bytes, count, counted, duration } from '../format.js';
import { Live } from '../live.js';
import { colouredTxn, content, hue, messageCells, names, pending, separated } from '../parts.js';

const name = document.body.dataset.name;
// The strip has more.
const ROWS_MAX = 20;
// A block of so many messages has room for its transaction.
const NAMED_MIN = 8;
const parameters = new URLSearchParams(location.search);
const partition = /^\d{1,9}$/.test(parameters.get('partition') ?? '') ? Number(parameters.get('partition')) : 0;

function render(view) {
  const [topic] = view.rows('topic');
  if (!topic) return;
  const partitions = view.rows('partitions').sort((a, b) => a.partition - b.partition);
  showFacts('facts', [
    ['Messages', count(partitions.reduce((sum, one) => sum + one.end_offset - one.first_offset, 0))],
    ['Partitions', count(topic.partitions)],
    ['Open transactions', count(view.rows('open').length)],
    ['Kept', [
      topic.retention_ms ? `for ${duration(topic.retention_ms)}` : '',
      topic.retention_bytes ? `up to ${bytes(topic.retention_bytes)} in a partition` : '',
    ].filter(Boolean).join(', ') || 'for ever'],
  ]);
  showRows('partitions', partitions, (one) => String(one.partition), (one) => [
    [link('/topic', { name, partition: one.partition }, `partition ${one.partition}`, {
      'data-focus': String(one.partition), 'aria-current': one.partition === partition ? 'true' : null })],
    one.broker,
    one.end_offset > one.first_offset ? `${count(one.first_offset)} to ${count(one.end_offset - 1)}` : 'none',
    count(one.end_offset - one.first_offset),
    one.open ? [...separated(one.open_txns.map(txnLink)), one.open > one.open_txns.length ? ` and ${count(one.open - one.open_txns.length)} more` : ''] : 'none',
  ]);
  const subscriptions = view.rows('subscriptions').sort((a, b) => (a.name < b.name ? -1 : 1));
  showRows('subscriptions', subscriptions, (one) => one.name, (one) => [
    one.name, count(one.backlog), pending(one), count(one.unacked), names(one.consumers),
  ]);
}

// Consecutive messages of the same transaction, or outside of any, are a block.
function blocks(messages) {
  const found = [];
  for (const one of messages) {
    const last = found.at(-1);
    if (last && last.id === one.txn_id) last.size += 1;
    else found.push({ id: one.txn_id, size: 1, first: one.offset });
  }
  return found;
}

function strip(id, found, nothing) {
  byId(id).replaceChildren(...(found.length ? found.map((one) => {
    const title = one.id ? `${counted(one.size, 'message')} of transaction ${one.id}` : `${counted(one.size, 'plain message')}`;
    const made = element('span', { class: one.id ? '' : 'plain', title: one.first === undefined ? title : `${title}, from offset ${one.first}` },
      one.size >= NAMED_MIN ? `${one.id || 'plain'} ×${one.size}` : one.size > 1 ? `×${one.size}` : '');
    made.style.flexGrow = one.size;
    made.style.setProperty('--hue', one.id ? hue(one.id) : 0);
    return made;
  }) : [element('p', {}, nothing)]));
}

function renderMessages(view) {
  const [log] = view.rows('log');
  if (!log) return;
  const messages = view.rows('messages').sort((a, b) => a.offset - b.offset);
  const waiting = view.rows('sidecar');
  strip('strip', blocks(messages), 'no messages');
  strip('sidecar-strip', blocks(waiting), 'nothing');
  byId('strip-note').textContent = messages.length
    ? `The last ${counted(messages.length, 'message')} up to offset ${count(log.end_offset - 1)}. Grey: plain messages. In colour: what a transaction has committed, from its marker on, all at once and side by side.`
    : '';
  showRows('sidecar', waiting.map((one, number) => ({ ...one, number })), (one) => String(one.number), (one) => [
    colouredTxn(one.txn_id), content(one.key), content(one.value),
  ]);
  showRows('messages', messages.slice(-ROWS_MAX).reverse(), (one) => String(one.offset), (one) => [
    ...messageCells(one),
  ]);
}

byId('partition').textContent = String(partition);
new Live(document.body.dataset.events, render);
new Live(`/events?${new URLSearchParams({ view: 'messages', name, partition })}`, renderMessages, { problems: 'message-problems', isMain: false });
