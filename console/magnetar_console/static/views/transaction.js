import { confirmAction } from '../confirm.js';
import { byId, element, showFacts, showRows, soft, tag } from '../dom.js';
import { bytes, clockText, count, precise, timeText } from '../format.js';
import { age, Live } from '../live.js';
import { counted, places, quoted, state, topicLink, who } from '../parts.js';
import { ENDED, placeName, timeline } from '../timeline.js';

const CAUSES = {
  BY_CLIENT: 'by its client',
  BY_HAND: 'by hand',
  TIMED_OUT: 'its timeout was over',
  TAKEN_OVER: 'another instance took over',
  MEMBER_EXPELLED: 'a member of a group that took part is gone',
  RESTORED_FROM_BACKUP: 'it was open in a backup that was restored',
  DECIDED_BEFORE_LOSS: 'it was decided before the store of its coordinator was lost',
};
const NO_DETAILS = {
  ENDED_BEFORE_START: 'It ended before its coordinator was started, and what it did is no longer known.',
  MANY_ENDED_SINCE: 'Thousands of transactions have ended since, and what it did is no longer known.',
};
const HALF_A_DAY_MS = 12 * 3600000;
const COMMITS = ['COMMITTING', 'COMMITTED'];

function advice(it) {
  const parts = [];
  if (it.unknown) {
    parts.push(element('p', {}, `The coordinator does not know this transaction: ${it.unknown}`));
  } else if (it.may_be_prepared) {
    parts.push(
      element('p', {}, element('strong', {}, 'It may be prepared: look into the database. '),
        'It never expires, and the database of its program decides. If the table magnetar_transaction_state has this state, commit it:'),
      element('pre', {}, element('code', {}, `magnetar transactions complete ${quoted(it.transactional_id)} --state '${it.prepared_state}'`)),
      element('p', {}, 'If the table does not have it, and the program never comes back, abort it:'),
      element('pre', {}, element('code', {}, `magnetar transactions force-terminate ${quoted(it.transactional_id)} --abort-prepared`)),
      ...(document.body.dataset.actions === 'yes' ? [element('p', {}, 'Or ', element('a', { href: '/hanging' }, 'do so here'), ', with what the database has.')] : []),
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
  const cause = [CAUSES[it.cause], it.caused_by].filter(Boolean).join(': ');
  const wrote = [...it.topics, ...it.subscriptions].length || !it.details_missing;
  return [
    ['Who', element('span', {}, ...who(it))],
    ['Begun', timeText(began)],
    ...(it.status === 'OPEN' ? [['Age', age(it.since_ms)], ['Deadline', deadline]] : []),
    ...(it.decided_at_ms ? [[`Decided: ${COMMITS.includes(it.status) ? 'commit' : 'abort'}`, [timeText(it.decided_at_ms), cause ? soft(cause) : '']]] : []),
    ...(ended ? [['Ended everywhere', [timeText(it.ended_at_ms), it.opened_at_ms ? soft(`${precise(it.ended_at_ms - it.opened_at_ms)} after it was begun`) : '']]] : []),
    [ended ? 'Wrote to' : 'Writes to', element('span', {}, wrote ? places(it.topics, it.subscriptions) : 'not known')],
    ...(it.stamp ? [['Stamp of the commit', String(it.stamp)]] : []),
    ...(it.trace_id ? [['Trace', element('span', { class: 'id' }, it.trace_id)]] : []),
  ];
}

// How much it has at a participant, and what of it is missing.
function written(one, it) {
  // A subscription does not keep the acknowledgements of a transaction that has ended.
  const number = one.subscription && one.state === 'ended' ? Math.max(one.written, one.confirmed ?? 0) : one.written;
  if (!number && !one.confirmed) return '–';
  const amount = counted(number, one.subscription ? 'acknowledgement' : 'message');
  const parts = [one.has_more ? `more than ${amount}` : amount];
  if (one.bytes) parts.push(soft(bytes(one.bytes)));
  if (one.pending) parts.push(soft(`${counted(one.pending, 'message')} pending`));
  const lost = COMMITS.includes(it.status) && !one.subscription && !one.has_more && one.confirmed !== null ? one.confirmed - one.written : 0;
  if (lost > 0 && !one.unanswered) parts.push(tag(`${count(lost)} of ${count(one.confirmed)} are missing`, 'bad'));
  return parts;
}

function endOf(one, it) {
  const word = COMMITS.includes(it.status) ? 'committed' : 'aborted';
  switch (one.state) {
    case 'open': return [tag('open')];
    case 'waits': return [tag('has not ended yet', 'warn')];
    case 'refuses': return [tag('refuses the end', 'bad')];
    default: return [tag(word, 'good'), one.ended_ms ? soft(after(one.ended_ms, it)) : ''];
  }
}

const after = (ms, it) => (it.opened_at_ms ? `${precise(ms - it.opened_at_ms)} after it was begun` : clockText(ms));

// A time, and how long after the beginning it was.
const moment = (ms, it) => [ms - it.opened_at_ms < HALF_A_DAY_MS ? clockText(ms) : timeText(ms), it.opened_at_ms ? soft(after(ms, it)) : ''];

function lastWrite(one, it) {
  // Brokers tell of the first one alone: this page has to be open to see a later one.
  if (!one.last_ms || (one.last_ms === one.first_ms && one.written > 1)) return '–';
  return moment(one.last_ms, it);
}

const URGENCY = ['refuses', 'waits', 'open', 'ended'];
const order = (a, b) => URGENCY.indexOf(a.state) - URGENCY.indexOf(b.state) || (placeName(a) < placeName(b) ? -1 : 1);

function render(view) {
  const [it] = view.rows('transaction');
  if (!it) return;
  const participants = view.rows('participants').sort(order);
  byId('state').replaceChildren(...(it.unknown ? [] : state(it)));
  advice(it);
  const abort = byId('abort');
  if (abort) abort.hidden = Boolean(it.unknown) || it.status !== 'OPEN' || it.may_be_prepared;
  showFacts('facts', it.unknown ? [] : facts(it));
  if (it.unknown) byId('timeline').hidden = true;
  else timeline(it, participants);
  showRows('participants', participants.map((one) => ({ ...one, status: it.status })), placeName, (one) => [
    [topicLink(one.topic), ` / ${one.partition}`, one.subscription ? soft(`acks of ${one.subscription}`) : ''],
    one.first_ms ? moment(one.first_ms, it) : one.state === 'ended' ? soft('not known') : tag('none seen', 'warn'),
    lastWrite(one, it),
    written(one, it),
    [...endOf(one, it), one.error ? soft(one.error) : '', one.unanswered ? soft(`its broker does not answer: ${one.unanswered}`) : ''],
  ]);
  byId('participants-empty').firstElementChild.textContent = NO_DETAILS[it.details_missing]
    ?? (ENDED.includes(it.status) ? 'It had written to no partition, and acknowledged nothing.' : 'It has written to no partition yet, and acknowledged nothing.');
}

const live = new Live(document.body.dataset.events, render);
setInterval(() => live.draw(), 1000);
byId('abort')?.addEventListener('click', () => confirmAction('abort', { id: document.body.dataset.name }));
