import { showRows, tag } from '../dom.js';
import { count } from '../format.js';
import { Live } from '../live.js';
import { groupLink, names, pending, topicLink } from '../parts.js';

const STATES = { EMPTY: ['no members', ''], STABLE: ['stable', 'good'], REBALANCING: ['rebalancing', 'warn'] };
const byName = (a, b) => (a.name < b.name ? -1 : 1);

new Live(document.body.dataset.events, (view) => {
  showRows('groups', view.rows('groups').sort(byName), (one) => one.name, (one) => [
    groupLink(one.name), tag(...STATES[one.state]), count(one.members), count(one.partitions),
    count(one.generation), count(one.lag),
  ]);
});

new Live('/events?view=topics', (view) => {
  const all = view.rows('subscriptions').sort((a, b) => (`${a.topic}/${a.name}` < `${b.topic}/${b.name}` ? -1 : 1));
  showRows('subscriptions', all.slice(0, 500), (one) => `${one.topic}/${one.name}`, (one) => [
    one.name, topicLink(one.topic), count(one.backlog), pending(one), count(one.unacked), names(one.consumers),
  ]);
}, { isMain: false, problems: 'subscription-problems' });
