// Elements without markup: what users typed is always text.

export const byId = (id) => document.getElementById(id);

// An element; properties are attributes, children are texts and elements.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== ''));
  return made;
}

export const tag = (text, kind = '') => element('span', { class: `tag ${kind}` }, text);

export const soft = (...children) => element('span', { class: 'soft' }, ...children);

export const link = (path, parameters, text, attributes = {}) =>
  element('a', { href: `${path}?${new URLSearchParams(parameters)}`, ...attributes }, text);

export const txnLink = (id) => link('/transaction', { id }, id, { class: 'id', 'data-focus': id });

// A row of a table. Cells have their columns' names, which narrow screens show beside them.
export function row(table, cells) {
  const heads = [...table.tHead.rows[0].cells];
  const made = element('tr', { role: 'row' });
  cells.forEach((cell, number) => {
    const head = heads[number];
    const data = element('td', { role: 'cell', 'data-label': head.textContent, class: head.className || null });
    // One child beside the label, whatever is in it.
    data.append(element('div', {}, ...[cell].flat()));
    made.append(data);
  });
  return made;
}

// Shows one row for each item. Rows that have not changed stay, and so does the focus.
export function showRows(id, items, key, cells) {
  const table = byId(id);
  const body = table.tBodies[0];
  const before = new Map([...body.rows].map((one) => [one.dataset.key, one]));
  items.forEach((item, number) => {
    const name = key(item);
    const content = JSON.stringify(item);
    let shown = before.get(name);
    before.delete(name);
    if (!shown || shown.dataset.content !== content) {
      const fresh = row(table, cells(item));
      fresh.dataset.key = name;
      fresh.dataset.content = content;
      if (shown) {
        const focused = shown.contains(document.activeElement) ? document.activeElement.dataset.focus : null;
        shown.replaceWith(fresh);
        if (focused) fresh.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
      }
      shown = fresh;
    }
    if (body.rows[number] !== shown) body.insertBefore(shown, body.rows[number] ?? null);
  });
  for (const gone of before.values()) gone.remove();
  const empty = byId(`${id}-empty`);
  if (empty) empty.hidden = items.length > 0;
}

// Shows names with values in a list of definitions.
export function showFacts(id, facts) {
  const content = JSON.stringify(facts.map(([name, value]) => [name, value instanceof Node ? value.outerHTML : value]));
  const list = byId(id);
  if (list.dataset.content === content) return;
  list.dataset.content = content;
  list.replaceChildren(...facts.map(([name, value, kind]) =>
    element('div', {}, element('dt', {}, name), element('dd', { class: kind }, value))));
}
