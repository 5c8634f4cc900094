import { byId, element, showFacts, showRows, soft } from '../dom.js';
import { clockText, count, duration, precise, timeText } from '../format.js';
import { age, Live, now } from '../live.js';
import { counted, places, state, topicLink, who } from '../parts.js';
import { confirmAction } from '../confirm.js';

const ENDED = ['COMMITTED', 'ABORTED'];

const name = (one) => `${one.topic} / ${one.partition}${one.subscription ? `, acks of ${one.subscription}` : ''}`;

function advice(it) {
  const parts = [];
  if (it.unknown) {
    parts.push(element('p', {}, `The coordinator does not know this transaction: ${it.unknown}`));
  } else if (it.may_be_prepared) {
    parts.push(
      element('p', {}, element('strong', {}, 'It may be prepared: look into the database. '),
        'It never expires, and the database of its program decides. If the table magnetar_transaction_state has this state, commit it:'),
      element('pre', {}, element('code', {}, `magnetar transactions complete ${it.transactional_id} --state '${it.prepared_state}'`)),
      element('p', {}, 'If the table does not have it, and the program never comes back, abort it:'),
      element('pre', {}, element('code', {}, `magnetar transactions force-terminate ${it.transactional_id} --abort-prepared`)),
    );
  } else if (it.unfinished && !ENDED.includes(it.status)) {
    parts.push(element('p', {}, `${counted(it.unfinished, 'participant')} of ${count(it.participants)} have not ended yet. The coordinator asks them until they answer.`));
  } else if (it.connected === false && it.status === 'OPEN') {
    parts.push(element('p', {}, 'The connection is gone through which it was begun. If the program does not come back, it expires at its deadline.'));
  }
  const place = byId('advice');
  const content = JSON.stringify([it.unknown, it.may_be_prepared, it.unfinished, it.connected, it.status]);
  if (place.dataset.content === content) return;
  place.dataset.content = content;
  place.replaceChildren(...(parts.length ? [element('div', { class: 'advice' }, ...parts)] : []));
}

function facts(it) {
  const ended = ENDED.includes(it.status);
  const began = it.opened_at_ms || (ended ? 0 : it.since_ms);
  const deadline = !it.timeout_ms ? 'never' : timeText(it.since_ms + it.timeout_ms);
  return [
    ['Who', element('span', {}, ...who(it))],
    ['Begun', timeText(began)],
    ended ? ['Ended', timeText(it.ended_at_ms)] : ['Age', age(it.since_ms)],
    ended ? ['Took', it.opened_at_ms ? precise(it.ended_at_ms - it.opened_at_ms) : 'not known'] : ['Deadline', deadline],
    ended
      ? ['Wrote to', it.participants ? places(it.topics, it.subscriptions) : 'not known']
      : ['Writes to', element('span', {}, places(it.topics, it.subscriptions))],
    ...(it.stamp ? [['Stamp of the commit', String(it.stamp)]] : []),
  ];
}

function endOf(one, it) {
  switch (one.state) {
    case 'open': return ['open', ''];
    case 'waits': return ['has not ended yet', 'warn'];
    case 'refuses': return ['refuses the end', 'bad'];
    default: return [it.status === 'COMMITTED' || it.status === 'COMMITTING' ? 'committed' : 'aborted', 'good'];
  }
}

// A time, and how long after the beginning it was.
function moment(ms, it) {
  return [timeText(ms), it.opened_at_ms ? soft(`${precise(ms - it.opened_at_ms)} after it was begun`) : ''];
}

const tagText = ([text, kind]) => element('span', { class: `tag ${kind}` }, text);

function timeline(it, participants) {
  const ended = ENDED.includes(it.status);
  const began = it.opened_at_ms || (ended ? 0 : it.since_ms);
  const place = byId('timeline');
  const note = byId('timeline-note');
  if (!began) {
    place.replaceChildren();
    place.hidden = true;
    note.textContent = 'The coordinator does not remember when it began.';
    return;
  }
  place.hidden = false;
  const deadline = !ended && it.timeout_ms ? began + it.timeout_ms : 0;
  const present = ended ? it.ended_at_ms : Math.max(now(), began);
  const stop = Math.max(present, deadline, ...participants.map((one) => one.last_ms), began + 1);
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
  const marks = () => [
    ...(ended ? [] : [mark(present, 'now', 'now')]),
    ...(deadline ? [mark(deadline, 'deadline', 'deadline')] : []),
    ...(it.decided_by_ms && !ended ? [mark(it.decided_by_ms, 'decided', 'decided')] : []),
  ];
  const share = (present - began) / (stop - began);
  const words = element('em', { class: share > 0.6 ? 'before' : '' }, ended ? `${it.status.toLowerCase()} after ${precise(present - began)}` : `now, ${duration(present - began)}`);
  words.style.left = at(present);
  const rows = [element('div', { class: 'label' }, 'transaction'), element('div', { class: 'lane' }, bar(began, present, 'whole', 'from its beginning'), words, ...marks())];
  for (const one of participants) {
    const bars = [];
    if (one.first_ms) bars.push(bar(one.first_ms, Math.max(one.first_ms, one.last_ms), one.state === 'refuses' ? 'bad' : '', 'from its first write to the last one that was seen'));
    else bars.push(bar(began, present, 'none', 'no write was seen'));
    rows.push(element('div', { class: 'label' }, name(one)), element('div', { class: 'lane' }, ...bars, ...marks()));
  }
  const axis = element('div', { class: 'axis' });
  const write = (ms, text, kind) => {
    const made = element('span', { class: kind }, text);
    made.style.left = at(ms);
    axis.append(made);
  };
  write(began, `begun ${clockText(began)}`, '');
  if (deadline) write(stop, `deadline after ${duration(it.timeout_ms)}`, 'end');
  else write(stop, ended ? clockText(it.ended_at_ms) : 'it never expires', 'end');
  rows.push(element('div', {}), axis);
  place.replaceChildren(...rows);
  note.textContent = ended && !participants.length
    ? 'After the end its coordinator keeps the outcome and the times, and not the participants.'
    : 'Bars reach from the first write of each participant to the last one that the console has seen, to the second.';
}

function render(view) {
  const [it] = view.rows('transaction');
  if (!it) return;
  const participants = view.rows('participants').sort((a, b) => (name(a) < name(b) ? -1 : 1));
  byId('state').replaceChildren(...(it.unknown ? [] : state(it)));
  advice(it);
  const abort = byId('abort');
  if (abort) abort.hidden = Boolean(it.unknown) || it.status !== 'OPEN' || it.may_be_prepared;
  showFacts('facts', it.unknown ? [] : facts(it));
  if (it.unknown) byId('timeline').hidden = true;
  else timeline(it, participants);
  showRows('participants', participants.map((one) => ({ ...one, status: it.status })), name, (one) => [
    [topicLink(one.topic), ` / ${one.partition}`, one.subscription ? soft(`acks of ${one.subscription}`) : ''],
    one.first_ms ? moment(one.first_ms, it) : tagText(['none seen', 'warn']),
    one.last_ms ? moment(one.last_ms, it) : '–',
    one.written ? counted(one.written, one.subscription ? 'acknowledgement' : 'message') : '–',
    [tagText(endOf(one, it)), one.error ? soft(one.error) : ''],
  ]);
  byId('participants-empty').firstElementChild.textContent = it.status === 'OPEN'
    ? 'It has written to no partition yet, and acknowledged nothing.'
    : 'Its participants are not known: open this page while a transaction is open to see them.';
}

const live = new Live(document.body.dataset.events, render);
setInterval(() => live.draw(), 1000);
byId('abort')?.addEventListener('click', () => confirmAction('abort', { id: document.body.dataset.name }));
