// Asks before something is changed: says what will happen, and changes only that.

import { byId } from './dom.js';

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

// Opens the dialog of the page. Both paths get the body; the second one also gets the mark of what
// the first has told, so that nothing else happens than was confirmed.
export async function confirm({ title, yes: yesText, body, foretell, change, describe }) {
  const dialog = byId('confirm');
  const problem = byId('confirm-problem');
  const yes = byId('confirm-yes');
  if (title) byId('confirm-title').textContent = title;
  if (yesText) yes.textContent = yesText;
  const look = async () => {
    yes.disabled = true;
    const told = await ask(foretell, body);
    byId('confirm-loss').replaceChildren(...describe(told));
    yes.disabled = false;
    return told;
  };
  problem.textContent = '';
  yes.disabled = true;
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
      await ask(change, { ...body, seen: told.seen });
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
      try { told = await look(); } catch { /* The first error says more. */ }
    }
  };
}
