// Carries out an action, after the viewer has seen what will happen.

import { ask } from './ask.js';
import { byId, element } from './dom.js';

function show(plan) {
  byId('confirm-title').textContent = plan.question;
  byId('confirm-plan').replaceChildren(...plan.sentences.map((one) => element('li', {}, one)));
  const yes = byId('confirm-yes');
  yes.textContent = plan.yes;
  yes.disabled = false;
}

// Asks with the plan of an action, which is asked for here if it is not known yet.
export async function confirmAction(name, body, known = null) {
  const dialog = byId('confirm');
  const problem = byId('confirm-problem');
  const yes = byId('confirm-yes');
  let plan = known;
  const look = async () => {
    yes.disabled = true;
    plan = await ask(`/plan/${name}`, body);
    show(plan);
  };
  problem.textContent = '';
  byId('confirm-plan').replaceChildren();
  byId('done').textContent = '';
  yes.disabled = true;
  dialog.showModal();
  try {
    if (known) show(known);
    else await look();
  } catch (error) {
    problem.textContent = error.message;
    return;
  }
  yes.onclick = async () => {
    yes.disabled = true;
    problem.textContent = '';
    try {
      const done = await ask(`/do/${name}`, { ...body, seen: plan.seen });
      dialog.close();
      byId('done').textContent = done.text;
      document.dispatchEvent(new CustomEvent('done', { detail: name }));
    } catch (error) {
      problem.textContent = error.message;
      try { await look(); } catch { /* The first error says more. */ }
    }
  };
}
