import { byId, element, showFacts, showRows, soft, txnLink } from '../dom.js';
import { count, duration, precise, timeText } from '../format.js';
import { age, Live, meter } from '../live.js';
import { places, state, who } from '../parts.js';

// More rows would help no reader, and slow the browser down.
const ROWS_MAX = 200;

function matches(one, text, wanted) {
  if (wanted === 'PREPARED' ? !one.may_be_prepared : wanted && one.status !== wanted) return false;
  if (!text) return true;
  const names = [...one.topics, ...one.subscriptions].flatMap((place) => [place.topic, place.subscription]);
  return [one.id, one.client, one.host, one.principal, one.transactional_id, ...names]
    .some((word) => word?.toLowerCase().includes(text));
}

function ageAndDeadline(one) {
  if (one.ended_at_ms) return age(one.since_ms);
  if (!one.timeout_ms) return [age(one.since_ms), soft('never expires')];
  return [age(one.since_ms), ` of ${duration(one.timeout_ms)}`, meter(one.since_ms, one.timeout_ms)];
}

function render(view) {
  const all = view.rows('transactions').sort((a, b) => a.since_ms - b.since_ms || (a.id < b.id ? -1 : 1));
  const text = byId('filter-text').value.trim().toLowerCase();
  const found = all.filter((one) => matches(one, text, byId('filter-state').value));
  const prepared = all.filter((one) => one.may_be_prepared).length;
  const ending = all.filter((one) => one.status !== 'OPEN').length;
  showFacts('tiles', [
    ['Open', count(all.length - ending)],
    ['Oldest', all.length ? age(all[0].since_ms) : '–'],
    ['May be prepared', count(prepared), prepared ? 'warn' : ''],
    ['Ending', count(ending)],
  ]);
  showRows('transactions', found.slice(0, ROWS_MAX), (one) => one.id, (one) => [
    txnLink(one.id),
    who(one),
    [...state(one), one.may_be_prepared ? soft('look into its database') : ''],
    ageAndDeadline(one),
    places(one.topics, one.subscriptions),
  ]);
  byId('transactions-empty').hidden = all.length > 0;
  let shown = '';
  if (found.length > ROWS_MAX) shown = `The oldest ${ROWS_MAX} of ${count(found.length)} are shown.`;
  else if (found.length < all.length) shown = `${count(found.length)} of ${count(all.length)} match.`;
  byId('shown').textContent = shown;
  const ended = view.rows('ended').sort((a, b) => b.since_ms - a.since_ms || (a.id < b.id ? 1 : -1));
  showRows('ended', ended, (one) => one.id, (one) => [
    txnLink(one.id),
    state(one),
    who(one),
    [element('span', { title: timeText(one.ended_at_ms) }, age(one.since_ms, ' ago'))],
    one.opened_at_ms ? precise(one.ended_at_ms - one.opened_at_ms) : '–',
    one.participants ? places(one.topics, one.subscriptions) : soft('not known'),
  ]);
}

const live = new Live(document.body.dataset.events, render);
byId('filter').addEventListener('submit', (event) => event.preventDefault());
byId('filter').addEventListener('input', () => live.changed());

