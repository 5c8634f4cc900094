import { ask } from '../ask.js';
import { byId, element, showFacts, showRows, soft } from '../dom.js';
import { count, counted, timeText } from '../format.js';
import { Live } from '../live.js';
import { messageCells } from '../parts.js';

// More would help no reader; the filter finds the others.
const TOPICS_SHOWN = 100;
const PARTITIONS_SHOWN = 300;

const chosen = new Set();
let token = '';

function refused(error) {
  byId('cut-problem').textContent = error.message;
}

// Topics to choose from.

function countChosen() {
  const button = byId('take-button');
  button.disabled = !chosen.size;
  button.textContent = chosen.size ? `Take a cut of ${counted(chosen.size, 'topic')}` : 'Choose topics first';
}

function check(name) {
  const box = element('input', { type: 'checkbox', value: name });
  box.checked = chosen.has(name);
  box.addEventListener('change', () => {
    if (box.checked) chosen.add(name);
    else chosen.delete(name);
    countChosen();
  });
  return element('label', {}, box, ` ${name}`);
}

function render(view) {
  const names = view.rows('topics').map((one) => one.name).sort();
  byId('topics-empty').hidden = names.length > 0;
  for (const name of chosen) if (!names.includes(name)) chosen.delete(name);
  const text = byId('take-filter').value.trim().toLowerCase();
  const found = names.filter((one) => one.toLowerCase().includes(text));
  const place = byId('take-topics');
  if (place.dataset.names !== JSON.stringify(found)) {
    place.dataset.names = JSON.stringify(found);
    const more = found.length > TOPICS_SHOWN ? [soft(`and ${count(found.length - TOPICS_SHOWN)} more: use the filter`)] : [];
    place.replaceChildren(...found.slice(0, TOPICS_SHOWN).map(check), ...more);
  }
  countChosen();
}

// One cut.

function showCut(cut) {
  token = cut.token;
  history.replaceState(null, '', `#${token}`);
  byId('cut-problem').textContent = '';
  byId('cut').hidden = false;
  byId('reading').hidden = true;
  byId('cut-token').value = token;
  byId('cut-copied').textContent = '';
  const partitions = cut.topics.flatMap(({ topic, partitions: some }) => some.map((one, partition) => ({ topic, partition, ...one })));
  showFacts('cut-facts', [
    ['Taken', timeText(cut.time_ms)],
    ['Topics', cut.topics.map((one) => one.topic).join(', ')],
    ['Partitions', count(partitions.length)],
  ]);
  showRows('cut-partitions', partitions.slice(0, PARTITIONS_SHOWN), (one) => `${one.topic}/${one.partition}`, (one) => [
    `${one.topic} / ${one.partition}`,
    one.end_offset > one.first_offset ? `${count(one.first_offset)} to ${count(one.end_offset - 1)}` : 'none',
    one.end_offset > one.first_offset ? readButton(one) : soft('nothing to read'),
  ]);
  byId('cut-note').textContent = partitions.length > PARTITIONS_SHOWN ? `The first ${PARTITIONS_SHOWN} of ${count(partitions.length)} partitions are shown.` : '';
  byId('cut-title').focus();
}

function readButton(one) {
  const label = `Read ${one.topic} / ${one.partition} at the cut`;
  const made = element('button', { type: 'button', class: 'quiet', 'aria-label': label }, 'Read at the cut');
  made.addEventListener('click', () => read(one.topic, one.partition, 0, []));
  return made;
}

// Reads messages before an offset; 0: the last ones. They are shown below those that are known.
async function read(topic, partition, before, known) {
  const earlier = byId('reading-earlier');
  byId('reading').hidden = false;
  byId('reading-problem').textContent = '';
  byId('reading-title').textContent = `${topic} / ${partition} at the cut`;
  earlier.disabled = true;
  try {
    const told = await ask('/ask/read-cut', { token, topic, partition, before });
    const messages = [...known, ...told.messages.reverse()];
    const since = told.now_end_offset - told.end_offset;
    byId('reading-told').textContent = `In the cut the partition ends at offset ${count(told.end_offset)}. `
      + (since ? `Since then ${counted(since, 'message has', 'messages have')} come. Readers see them now, and a reader at this cut does not.` : 'Nothing has come since.')
      + (told.removed ? ` Retention has removed ${counted(told.removed, 'message')} of it.` : '');
    showRows('messages', messages, (one) => String(one.offset), messageCells);
    earlier.hidden = told.is_first;
    earlier.disabled = false;
    earlier.onclick = () => read(topic, partition, told.start, messages);
  } catch (error) {
    byId('reading-told').textContent = '';
    byId('reading-problem').textContent = error.message;
    if (!known.length) showRows('messages', [], String, messageCells);
    byId('messages-empty').hidden = true;
    earlier.hidden = true;
  }
  if (!known.length) byId('reading-title').focus();
}

byId('take').addEventListener('submit', async (event) => {
  event.preventDefault();
  const button = byId('take-button');
  button.disabled = true;
  button.textContent = 'Waiting for commits that are decided …';
  try {
    showCut(await ask('/ask/take-cut', { topics: [...chosen].sort() }));
  } catch (error) {
    refused(error);
  }
  countChosen();
});

byId('open').addEventListener('submit', (event) => {
  event.preventDefault();
  ask('/ask/describe-cut', { token: byId('open-token').value }).then(showCut, refused);
});

byId('cut-copy').addEventListener('click', async () => {
  byId('cut-token').select();
  try {
    await navigator.clipboard.writeText(token);
    byId('cut-copied').textContent = 'Copied.';
  } catch {
    byId('cut-copied').textContent = 'It is selected: copy it with your keyboard.';
  }
});

const live = new Live(document.body.dataset.events, render);
byId('take-filter').addEventListener('input', () => live.changed());
// The token is in the address, where no server sees it: the page can be loaded again.
if (location.hash.length > 1) ask('/ask/describe-cut', { token: location.hash.slice(1) }).then(showCut, refused);
