// Parts that several views show.

import { element, link, soft, tag, txnLink } from './dom.js';
import { bytes, clockText, count, counted, timeText } from './format.js';

const STATES = {
  OPEN: ['open', ''],
  COMMITTING: ['committing', 'warn'],
  ABORTING: ['aborting', 'warn'],
  COMMITTED: ['committed', 'good'],
  ABORTED: ['aborted', 'bad'],
};

export function state(one) {
  const [text, kind] = STATES[one.status] ?? [one.status.toLowerCase(), ''];
  const tags = [tag(text, kind)];
  if (one.as_of_ms) tags.push(' ', tag(`as of ${clockText(one.as_of_ms)}: its coordinator is away`, 'bad'));
  if (one.may_be_prepared) tags.push(' ', tag('two-phase: may be prepared', 'warn'));
  else if (one.two_phase) tags.push(' ', tag('two-phase'));
  return tags;
}

// Whose a transaction is: the most telling name first.
export function who(one) {
  const names = [one.transactional_id, one.principal, one.client].filter(Boolean);
  const parts = [];
  if (one.transactional_id) parts.push(element('span', { class: 'id' }, one.transactional_id));
  else parts.push(names.length ? names[0] : 'not known');
  const more = [];
  if (one.client && names[0] !== one.client) more.push(one.client);
  if (one.principal && names[0] !== one.principal) more.push(`as ${one.principal}`);
  if (one.host) more.push(`at ${one.host}`);
  if (one.connected === false) more.push('its connection is gone');
  if (more.length) parts.push(soft(more.join(', ')));
  return parts;
}

export function places(topics, subscriptions) {
  const parts = [...topics, ...subscriptions].map(place);
  return parts.length ? element('span', { class: 'places' }, parts) : soft('nothing written yet');
}

// Partitions as "invoices / 0, 2", acknowledged messages as "acks of bill: purchases / 3".
function place(one) {
  if (one.more) return element('span', {}, `and ${counted(one.more, 'more name')}`);
  const numbers = one.partitions.join(', ') + (one.count > one.partitions.length ? ', …' : '');
  return element('span', {}, `${one.subscription ? `acks of ${one.subscription}: ` : ''}${one.topic} / ${numbers}`);
}

// A key or a value.
export function content(one) {
  if (one === null || one === undefined) return soft('none');
  const more = one.cut ? ` … (${bytes(one.bytes)} in all)` : '';
  const form = one.form === 'bytes' ? [soft(`${bytes(one.bytes)}, not text, in hexadecimal digits`)] : [];
  if (one.form.startsWith('Avro')) form.push(soft(one.form));
  if (one.note) form.push(soft(one.note));
  if (!one.text) return soft('empty');
  if (one.text.length <= 160 && one.text.split('\n').length <= 4) {
    return [element('span', { class: 'value' }, one.text + more), ...form];
  }
  const first = one.text.replace(/\s+/g, ' ').slice(0, 140);
  return [element('details', { class: 'value' }, element('summary', {}, `${first}…`), one.text + more), ...form];
}

// The cells of a message that readers see.
export const messageCells = (one) => {
  const properties = Object.entries(one.properties).map(([key, value]) => `${key}: ${value}`).join(', ');
  return [
    count(one.offset),
    timeText(one.append_time_ms),
    one.txn_id ? ['committed by ', ...colouredTxn(one.txn_id)] : tag('plain'),
    content(one.key),
    [content(one.value), properties ? soft(properties) : ''].flat(),
  ];
};

export function pending(one) {
  if (!one.pending) return '0';
  const shown = one.pending_txns.slice(0, 5);
  const more = one.pending_txns.length > 5 ? [' and more'] : [];
  return [counted(one.pending, 'message'), soft('in ', ...separated(shown.map(txnLink)), ...more)];
}

export const separated = (parts) => parts.flatMap((one, number) => (number ? [', ', one] : [one]));

export const topicLink = (name) => link('/topic', { name }, name, { 'data-focus': name });

export const groupLink = (name) => link('/group', { name }, name, { 'data-focus': name });

// A text as an argument of a shell.
export const quoted = (text) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const short = (text) => (text.length > 24 ? `${text.slice(0, 12)}…` : text);

export const names = (list) => (list.length
  ? element('span', { title: list.join(', ') }, list.slice(0, 5).map(short).join(', ') + (list.length > 5 ? ' and more' : ''))
  : '–');

export { count, counted };

// A transaction with the colour that it has in the strips.
export function colouredTxn(id) {
  const square = element('span', { class: 'square', 'aria-hidden': 'true' });
  square.style.setProperty('--hue', hue(id));
  return [square, txnLink(id)];
}

// A colour of its own for each transaction.
export function hue(id) {
  let found = 0;
  for (const letter of id) found = (found * 31 + letter.charCodeAt(0)) % 3600;
  return (found * 137) % 360;
}
