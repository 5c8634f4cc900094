// The timeline of one transaction: a lane for it, and one for each participant.

import { byId, element } from './dom.js';
import { clockText, counted, duration, precise } from './format.js';
import { now } from './live.js';

export const ENDED = ['COMMITTED', 'ABORTED'];

export const placeName = (one) => `${one.topic} / ${one.partition}${one.subscription ? `, acks of ${one.subscription}` : ''}`;

const OUTCOMES = { COMMITTING: 'commit', COMMITTED: 'commit', ABORTING: 'abort', ABORTED: 'abort' };

// While little of its time has passed, the axis ends before the deadline: else nothing could be seen.
const SHARE_MIN = 0.2;
const AHEAD = 0.35;

// From when to when the axis reaches, and the deadline if there is one.
function axisOf(it, participants) {
  const ended = ENDED.includes(it.status);
  const began = it.opened_at_ms || (ended ? 0 : it.since_ms);
  const present = ended ? it.ended_at_ms : Math.max(now(), began);
  const deadline = it.status === 'OPEN' && it.timeout_ms ? began + it.timeout_ms : 0;
  const last = Math.max(present, ...participants.map((one) => Math.max(one.last_ms, one.ended_ms)), began + 1);
  const isFar = deadline && last - began < SHARE_MIN * (deadline - began);
  const stop = isFar || (!deadline && !ended) ? last + AHEAD * (last - began) : Math.max(last, deadline);
  return { ended, began, present, deadline, stop, isFar: Boolean(isFar) };
}

function lanes(it, participants, { ended, began, present, deadline, stop, isFar }) {
  const at = (ms) => `${(100 * Math.min(1, Math.max(0, (ms - began) / (stop - began)))).toFixed(2)}%`;
  const bar = (from, to, kind, title) => {
    const made = element('i', { class: kind, title });
    made.style.left = at(from);
    made.style.width = `calc(${at(to)} - ${at(from)})`;
    return made;
  };
  const mark = (ms, kind, title) => {
    const made = element('b', { class: kind, title });
    made.style.left = at(ms);
    return made;
  };
  const words = (ms, text, kind = '') => {
    const isLate = (ms - began) / (stop - began) > 0.6;
    const made = element('em', { class: `${isLate ? 'before' : ''} ${kind}` }, text);
    made.style.left = at(ms);
    return made;
  };
  const marks = () => [
    ...(ended ? [] : [mark(present, 'now', 'now')]),
    ...(deadline && !isFar ? [mark(deadline, 'deadline', 'deadline')] : []),
    ...(it.decided_at_ms ? [mark(it.decided_at_ms, 'decided', `decided: ${OUTCOMES[it.status]}`)] : []),
  ];
  const row = (label, ...parts) => [element('div', { class: 'label' }, label), element('div', { class: 'lane' }, ...parts, ...marks())];
  const said = ended ? `${it.status.toLowerCase()} after ${precise(present - began)}` : `now, ${duration(present - began)}`;
  const rows = row('transaction', bar(began, present, 'whole', 'from its beginning'), words(it.decided_at_ms || present, said));
  for (const one of participants) {
    const parts = [];
    if (one.first_ms) parts.push(bar(one.first_ms, Math.max(one.first_ms, one.last_ms), '', 'from its first write to the last one that was seen'));
    else if (!ended) parts.push(bar(began, present, 'none', 'no write was seen'));
    if (one.ended_ms) parts.push(mark(one.ended_ms, 'end', `ended ${precise(one.ended_ms - began)} after it was begun`));
    if (one.state === 'waits' || one.state === 'refuses') {
      parts.push(bar(it.decided_at_ms || present, present, one.state === 'refuses' ? 'bad none' : 'none', 'its end is missing'));
      parts.push(words(present, one.state === 'refuses' ? 'refuses the end' : 'its end is missing', 'missing'));
    }
    rows.push(...row(placeName(one), ...parts));
  }
  const axis = element('div', { class: 'axis' });
  const write = (ms, text, kind) => {
    const made = element('span', { class: kind }, text);
    made.style.left = at(ms);
    axis.append(made);
  };
  write(began, `begun ${clockText(began)}`, '');
  if (deadline) write(stop, isFar ? `the deadline is ${duration(deadline - present)} away →` : `deadline after ${duration(it.timeout_ms)}`, 'end');
  else write(stop, ended ? `ended ${clockText(it.ended_at_ms)}` : it.status === 'OPEN' ? 'it never expires →' : 'until all have ended →', 'end');
  return [...rows, element('div', {}), axis];
}

// What the signs in it mean; only those that it has.
function legend(it, participants, { began }) {
  const sign = (kind, text) => element('span', {}, element('span', { class: `sign ${kind}`, 'aria-hidden': 'true' }), ` ${text}`);
  return [
    ...(participants.some((one) => one.first_ms) ? [sign('write', 'from the first write to the last one that was seen')] : []),
    ...(it.decided_at_ms ? [sign('decided', `decided: ${OUTCOMES[it.status]}, ${precise(it.decided_at_ms - began)} after it was begun`)] : []),
    ...(participants.some((one) => one.ended_ms) ? [sign('end', 'the participant has ended it')] : []),
    ...(participants.some((one) => ['waits', 'refuses'].includes(one.state)) ? [sign('missing', 'its end is missing')] : []),
  ];
}

// Draws it; the table below it has the same times.
export function timeline(it, participants) {
  const place = byId('timeline');
  const note = byId('timeline-note');
  const axis = axisOf(it, participants);
  place.hidden = !axis.began || !axis.present;
  note.replaceChildren();
  if (place.hidden) return;
  place.replaceChildren(...lanes(it, participants, axis));
  if (participants.length) note.append(...legend(it, participants, axis));
  place.setAttribute('aria-label', `Timeline of the transaction with ${counted(participants.length, 'participant')}; the table below has the same times`);
}
