// The events of a view: tables that change, and the state of what is shown.

import { byId, element } from './dom.js';
import { clockText, duration } from './format.js';

const TICK_MS = 500;
const RETRY_MS = 5000;
// A page that is hidden for so long stops asking.
const HIDDEN_MS = 30000;
const STALE_MS = 6000;

// The present by the console's clock, in milliseconds since the Unix epoch. While nothing new
// comes, it is the time of what is shown.
let offsetMs = 0;
let status = null;

export const now = () => (status && status.error ? status.as_of_ms : Date.now() + offsetMs);

export class Live {
  // Calls render(tables) after each change; tables are maps of rows by key.
  constructor(url, render, { problems = 'problems', isMain = true } = {}) {
    this.url = url;
    this.render = render;
    this.problems = problems;
    this.isMain = isMain;
    this.tables = {};
    this.hasState = false;
    this.open();
    document.addEventListener('visibilitychange', () => this.visibility());
    if (isMain) setInterval(tick, TICK_MS);
  }

  open() {
    const source = new EventSource(this.url);
    this.source = source;
    source.addEventListener('state', ({ data }) => {
      this.tables = {};
      for (const [name, rows] of Object.entries(JSON.parse(data))) this.tables[name] = new Map(Object.entries(rows));
      this.changed();
    });
    source.addEventListener('change', ({ data }) => {
      for (const [name, { set, gone }] of Object.entries(JSON.parse(data))) {
        const table = (this.tables[name] ??= new Map());
        for (const key of gone) table.delete(key);
        for (const [key, value] of Object.entries(set)) table.set(key, value);
      }
      this.changed();
    });
    source.addEventListener('beat', ({ data }) => this.beat(JSON.parse(data)));
    source.addEventListener('error', () => this.broken());
  }

  close() {
    this.source?.close();
    this.source = null;
  }

  rows(name) {
    return [...(this.tables[name]?.values() ?? [])];
  }

  changed() {
    this.hasState = true;
    if (this.drawing) return;
    this.drawing = requestAnimationFrame(() => {
      this.drawing = 0;
      this.draw();
    });
  }

  draw() {
    // The first state is empty until the console has asked for the first time.
    if (this.hasState && this.wasSeen) this.render(this);
    tick();
  }

  beat(told) {
    if (this.isMain) {
      offsetMs = told.now_ms - Date.now();
      status = { ...told, got_ms: Date.now() };
    }
    const first = !this.wasSeen && told.as_of_ms;
    this.wasSeen ||= Boolean(told.as_of_ms);
    showProblems(this.problems, told);
    if (first) this.changed();
  }

  broken() {
    const { source } = this;
    if (!source) return;
    if (this.isMain) {
      status = { ...(status ?? { as_of_ms: 0, now_ms: Date.now() }), problems: [], lost: true,
        error: 'The console does not answer; this page tries again by itself.' };
      showProblems(this.problems, status);
    }
    if (source.readyState === EventSource.CLOSED) {
      this.source = null;
      setTimeout(() => { if (!this.source) this.open(); }, RETRY_MS);
    }
  }

  visibility() {
    clearTimeout(this.hiding);
    if (document.hidden) this.hiding = setTimeout(() => this.close(), HIDDEN_MS);
    else if (!this.source) this.open();
  }
}

function showProblems(id, { error, problems, as_of_ms: asOfMs }) {
  const texts = [];
  if (error) {
    texts.push(asOfMs ? `${error} What you see is as of ${clockText(asOfMs)}.` : error);
  }
  texts.push(...problems);
  const place = byId(id);
  const content = JSON.stringify(texts);
  if (place.dataset.content === content) return;
  place.dataset.content = content;
  place.replaceChildren(...texts.map((text) => element('p', { class: 'problem' }, text)));
  if (/^Auth(entication|orization)Failed/.test(error ?? '')) {
    place.append(element('p', {}, element('a', { href: '/sign-in' }, 'Sign in')));
  }
}

function showStatus() {
  const place = byId('live');
  const text = byId('live-text');
  if (!place || !status) return;
  const silent = Date.now() - status.got_ms > STALE_MS;
  const old = status.error || silent;
  const kind = old ? 'bad' : status.problems.length ? '' : 'good';
  const age = status.as_of_ms ? duration(10000 * Math.floor((Date.now() + offsetMs - status.as_of_ms) / 10000)) : '';
  let words = 'live';
  if (old) words = age ? `as of ${clockText(status.as_of_ms)}` : 'not reached yet';
  else if (status.problems.length) words = 'live, parts are missing';
  place.className = `live ${kind}`;
  document.body.classList.toggle('stale', Boolean(old));
  // Screen readers are told of changes alone.
  if (text.textContent !== words) text.textContent = words;
}

// An element that shows how long ago something was, and goes on counting.
export function age(sinceMs, suffix = '') {
  return element('span', { 'data-since': sinceMs, 'data-suffix': suffix }, duration(now() - sinceMs) + suffix);
}

// A bar that shows how much of its time has passed.
export function meter(sinceMs, timeoutMs) {
  const bar = element('span');
  return element('span', { class: 'meter', 'data-begin': sinceMs, 'data-timeout': timeoutMs, 'aria-hidden': 'true' }, bar);
}

function tick() {
  showStatus();
  const present = now();
  for (const one of document.querySelectorAll('[data-since]')) {
    const text = duration(present - Number(one.dataset.since)) + one.dataset.suffix;
    if (one.textContent !== text) one.textContent = text;
  }
  for (const one of document.querySelectorAll('[data-timeout]')) {
    const part = Math.min(1, Math.max(0, (present - Number(one.dataset.begin)) / Number(one.dataset.timeout)));
    one.firstElementChild.style.width = `${(100 * part).toFixed(1)}%`;
    one.classList.toggle('warn', part > 0.5);
  }
}
