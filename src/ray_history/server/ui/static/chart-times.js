// Moments in the time zone of the page, and the range that its charts show.
'use strict';

const given = new URLSearchParams(location.search);

// The page of the Ray Dashboard around this one has the moment that is viewed in its own address.
const viewedMoment = () => {
  if (given.has('at')) return given.get('at');
  try { return new URLSearchParams(parent.location.search).get('at') ?? ''; } catch { return ''; }
};

const zone = (() => {
  const wanted = given.get('timezone') ?? '';
  if (['', 'browser', 'undefined', 'null'].includes(wanted)) return undefined;
  try { return new Intl.DateTimeFormat('en', { timeZone: wanted }).resolvedOptions().timeZone; } catch { return undefined; }
})();
const zoneName = zone ?? Intl.DateTimeFormat().resolvedOptions().timeZone;

const written = options => {
  const format = new Intl.DateTimeFormat('en-GB', { hourCycle: 'h23', timeZone: zone, ...options });
  return ms => format.format(new Date(ms));
};
const TIME = { hour: '2-digit', minute: '2-digit' }, DAY = { day: 'numeric', month: 'short' };
const timeOfDay = written(TIME), withSeconds = written({ ...TIME, second: '2-digit' });
const day = written(DAY), fullMoment = written({ ...DAY, year: 'numeric', ...TIME, second: '2-digit' });

// The labels of ticks: as much as tells one from the next, and the day where it begins.
const tickLabels = seconds => {
  const apart = seconds.length > 1 ? seconds[1] - seconds[0] : 60;
  let before = '';
  return seconds.map(second => {
    const today = day(second * 1000), isNew = before !== '' && before !== today;
    before = today;
    if (apart >= 86400 || isNew) return today;
    return (apart < 60 ? withSeconds : timeOfDay)(second * 1000);
  });
};

// What the charts show: `from` and `to` as in the address, empty for the whole session. Earlier ranges are kept, so
// that one can go back.
const range = {
  from: '', to: '', earlier: [], listeners: [],
  change(from, to) {
    this.earlier.push([this.from, this.to]);
    this.set(from, to);
  },
  back() {
    const before = this.earlier.pop();
    if (before) this.set(...before);
  },
  set(from, to) {
    [this.from, this.to] = [String(from), String(to)];
    this.listeners.forEach(listener => listener());
  },
  get key() { return `${this.from} ${this.to}`; },
};
