import { ask } from '../ask.js';
import { confirmAction } from '../confirm.js';
import { byId, element, showRows, soft, txnLink } from '../dom.js';
import { count, counted } from '../format.js';
import { age, Live } from '../live.js';
import { places, quoted, state, topicLink } from '../parts.js';

const allowed = document.body.dataset.actions === 'yes';

function button(text, label, act) {
  const made = element('button', { class: 'quiet', 'aria-label': label, 'data-focus': label }, text);
  made.addEventListener('click', act);
  return made;
}

// Open transactions of transactional ids.

const command = (text) => element('pre', {}, element('code', {}, text));

function remedy(one) {
  const name = quoted(one.transactional_id);
  if (one.two_phase) {
    if (allowed) return button('Look into the database…', `Decide ${one.id} of ${one.transactional_id}`, () => decide(one));
    return element('details', {}, element('summary', {}, 'commands for an administrator'),
      'If its database has the state, commit it:', command(`magnetar transactions complete ${name} --state '${one.prepared_state}'`),
      'If it does not, abort it:', command(`magnetar transactions force-terminate ${name} --abort-prepared`));
  }
  if (allowed) return button('Terminate…', `Terminate ${one.id} of ${one.transactional_id}`, () => confirmAction('terminate', { id: one.id }));
  return element('details', {}, element('summary', {}, 'command for an administrator'), command(`magnetar transactions force-terminate ${name}`));
}

function render(view) {
  const held = view.rows('held').sort((a, b) => b.two_phase - a.two_phase || a.since_ms - b.since_ms);
  showRows('held', held, (one) => one.id, (one) => [
    [element('span', { class: 'id' }, one.transactional_id), soft([one.client, one.host ? `at ${one.host}` : '', one.connected === false ? 'its connection is gone' : ''].filter(Boolean).join(', '))],
    txnLink(one.id), state(one), age(one.since_ms), places(one.topics, one.subscriptions), remedy(one),
  ]);
}

// Decides a transaction as its database says.
function decide(one) {
  const dialog = byId('decide');
  const fields = [byId('decide-state'), byId('decide-absent')];
  fields[0].value = '';
  fields[1].checked = false;
  byId('decide-problem').textContent = '';
  byId('decide-title').textContent = `${one.id} of ${one.transactional_id}: what does the database say?`;
  byId('decide-query').textContent = 'SELECT prepared_transaction_state FROM magnetar_transaction_state\n'
    + `  WHERE transactional_id = '${one.transactional_id.replaceAll("'", "''")}'`;
  byId('decide-close').onclick = () => dialog.close();
  byId('decide-form').onsubmit = async (event) => {
    event.preventDefault();
    const body = { id: one.id, state: fields[0].value, absent: fields[1].checked };
    try {
      const plan = await ask('/plan/decide', body);
      dialog.close();
      await confirmAction('decide', body, plan);
    } catch (error) {
      byId('decide-problem').textContent = error.message;
    }
  };
  dialog.showModal();
}

// The search for hanging transactions.

let found = [];
let after = '';

function showFound() {
  showRows('hanging', found, (one) => JSON.stringify(one), (one) => [
    element('span', { class: 'id' }, one.id),
    [topicLink(one.topic), ` / ${one.partition}`, soft(one.subscription ? `acks of ${one.subscription}` : `from offset ${count(one.start_offset)} on`)],
    age(one.since_ms),
    counted(one.written, one.subscription ? 'acknowledgement' : 'message'),
    one.reason,
    allowed
      ? button('Abort there…', `Abort ${one.id} at ${one.topic} / ${one.partition} ${one.subscription}`, () => confirmAction('abort-hanging', one))
      : element('details', {}, element('summary', {}, 'command for an administrator'),
        command(`magnetar transactions abort ${one.id} --topic ${quoted(one.topic)} --partition ${one.partition}`
          + `${one.subscription ? ` --subscription ${quoted(one.subscription)}` : ''} --start-offset ${one.start_offset} --producer-epoch ${one.producer_epoch}`)),
  ]);
}

async function search(from) {
  const told = byId('search-told');
  const buttons = byId('search').querySelectorAll('button');
  buttons.forEach((one) => { one.disabled = true; });
  byId('search-problem').textContent = '';
  told.textContent = 'Searching …';
  try {
    const answer = await ask('/ask/hanging', { topic: byId('search-topic').value, age_ms_min: Number(byId('search-age').value), after: from });
    found = from ? [...found, ...answer.found] : answer.found;
    after = answer.after;
    const part = answer.after ? `, ${count(answer.searched)} of ${count(answer.topics)} topics` : '';
    told.textContent = found.length
      ? `${counted(found.length, 'place')} where a transaction hangs${part}.`
      : answer.problems.length ? 'Nothing was found where the search could look.' : `Nothing hangs in ${answer.after ? `the ${count(answer.searched)} of ${count(answer.topics)} topics that were searched` : counted(answer.topics, 'topic')}.`;
    byId('search-problem').textContent = answer.problems.join('. ');
    byId('search-more').hidden = !answer.after;
    showFound();
  } catch (error) {
    told.textContent = 'The search was not finished.';
    byId('search-problem').textContent = error.message;
  }
  buttons.forEach((one) => { one.disabled = false; });
}

byId('search').addEventListener('submit', (event) => {
  event.preventDefault();
  search('');
});
byId('search-more').addEventListener('click', () => search(after));
document.addEventListener('done', ({ detail }) => { if (detail === 'abort-hanging') search(''); });
new Live(document.body.dataset.events, render);
