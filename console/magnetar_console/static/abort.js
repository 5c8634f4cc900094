// Aborts a transaction, after the viewer has seen what will be lost.

import { confirm } from './confirm.js';
import { element } from './dom.js';
import { places } from './parts.js';

function describe(told) {
  const lost = element('ul');
  if (told.topics.length) lost.append(element('li', {}, 'All that it has written is discarded: ', places(told.topics, [])));
  if (told.subscriptions.length) lost.append(element('li', {}, 'Messages that it has acknowledged come back: ', places([], told.subscriptions)));
  if (!told.topics.length && !told.subscriptions.length) lost.append(element('li', {}, 'It has written and acknowledged nothing.'));
  const program = [told.transactional_id || told.client || 'not known', told.host ? `at ${told.host}` : ''].filter(Boolean).join(' ');
  lost.append(element('li', {}, `Its program (${program}) gets an error with its next send, ack or commit.`));
  return [element('p', {}, 'This cannot be undone.'), lost];
}

export const confirmAbort = (id) => confirm({ body: { id }, foretell: '/loss', change: '/abort', describe });
