// Numbers and times as text for people.

const COUNT = new Intl.NumberFormat('en');
const TIME = new Intl.DateTimeFormat('en-GB', {
  year: 'numeric', month: 'short', day: 'numeric',
  hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short',
});
const CLOCK = new Intl.DateTimeFormat('en-GB', {
  hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short',
});

export const count = (number) => (number === undefined || number === null ? '–' : COUNT.format(number));

// "1 message", "2 messages".
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export function duration(ms) {
  if (ms < 0) return '0 s';
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Short times in milliseconds.
export const precise = (ms) => (ms < 1000 ? `${Math.max(0, Math.round(ms))} ms` : duration(ms));

export const timeText = (ms) => (ms ? TIME.format(ms) : 'not known');

export const clockText = (ms) => (ms ? CLOCK.format(ms) : 'not known');

export const bytes = (number) => {
  if (number < 1000) return `${number} B`;
  const units = ['kB', 'MB', 'GB', 'TB'];
  let size = number;
  let unit = -1;
  do { size /= 1000; unit += 1; } while (size >= 999.5 && unit < units.length - 1);
  return `${size.toFixed(1)} ${units[unit]}`;
};
