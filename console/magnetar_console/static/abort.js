// Aborts a transaction, after the viewer has seen what will be lost.

import { byId, element } from './dom.js';
import { places } from './parts.js';

const pageToken = document.querySelector('meta[name=page-token]').content;

async function ask(path, body) {
  const response = await fetch(path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-console-token': pageToken },
    body: JSON.stringify(body),
  });
  const told = await response.json();
  if (!response.ok) throw new Error(`${told.error}: ${told.text}`);
  return told;
}

function describe(told) {
  const lost = element('ul');
  if (told.topics.length) lost.append(element('li', {}, 'All that it has written is discarded: ', places(told.topics, [])));
  if (told.subscriptions.length) lost.append(element('li', {}, 'Messages that it has acknowledged come back: ', places([], told.subscriptions)));
  if (!told.topics.length && !told.subscriptions.length) lost.append(element('li', {}, 'It has written and acknowledged nothing.'));
  const program = [told.transactional_id || told.client || 'not known', told.host ? `at ${told.host}` : ''].filter(Boolean).join(' ');
  lost.append(element('li', {}, `Its program (${program}) gets an error with its next send, ack or commit.`));
  return [element('p', {}, 'This cannot be undone.'), lost];
}

export async function confirmAbort(id) {
  const dialog = byId('confirm');
  const problem = byId('confirm-problem');
  const yes = byId('confirm-yes');
  const look = async () => {
    yes.disabled = true;
    const told = await ask('/loss', { id });
    byId('confirm-loss').replaceChildren(...describe(told));
    yes.disabled = false;
    return told;
  };
  problem.textContent = '';
  byId('confirm-loss').replaceChildren();
  let told;
  dialog.showModal();
  try {
    told = await look();
  } catch (error) {
    problem.textContent = error.message;
    return;
  }
  yes.onclick = async () => {
    yes.disabled = true;
    problem.textContent = '';
    try {
      await ask('/abort', { id, seen: told.seen });
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
      try { told = await look(); } catch { /* The first error says more. */ }
    }
  };
}
