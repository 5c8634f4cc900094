import { byId, showFacts, showRows, soft } from '../dom.js';
import { count, duration } from '../format.js';
import { Live, now } from '../live.js';
import { topicLink } from '../parts.js';

const ROWS_MAX = 300;
const OLD_MS = 20000;

function render(view) {
  const all = view.rows('topics').sort((a, b) => (a.name < b.name ? -1 : 1));
  const sum = (field) => all.reduce((total, one) => total + (one[field] ?? 0), 0);
  showFacts('tiles', [
    ['Topics', count(all.length)],
    ['Partitions', count(sum('partitions'))],
    ['Messages', count(sum('messages'))],
    ['Messages in a second', count(sum('per_s'))],
  ]);
  const text = byId('filter-text').value.trim().toLowerCase();
  const found = all.filter((one) => one.name.toLowerCase().includes(text));
  showRows('topics', found.slice(0, ROWS_MAX), (one) => one.name, (one) => [
    [topicLink(one.name), one.seen_ms && now() - one.seen_ms > OLD_MS ? soft(`as of ${duration(now() - one.seen_ms)} ago`) : ''],
    count(one.partitions),
    count(one.messages),
    count(one.per_s),
    one.open_more ? `${count(one.open)} or more` : count(one.open),
  ]);
  byId('topics-empty').hidden = all.length > 0;
  byId('shown').textContent = found.length > ROWS_MAX ? `The first ${ROWS_MAX} of ${count(found.length)} are shown.` : '';
}

const live = new Live(document.body.dataset.events, render);
byId('filter-text').addEventListener('input', () => live.changed());
byId('filter-text').form.addEventListener('submit', (event) => event.preventDefault());
