// Values with the units that Grafana's dashboards name.
'use strict';

// At most `digits` significant digits, never an exponent, and no zeros at the end.
const rounded = (value, digits = 4) => {
  const size = Math.abs(value);
  if (size >= 10 ** digits) return Math.round(value).toLocaleString('en', { useGrouping: false });
  return (size && size < 1e-6) ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
};

// The value in the first unit of `names`, each `base` times the one before, in which it is less than `base`.
const scaled = (value, digits, base, names) => {
  let number = 0;
  while (Math.abs(value) >= base && number < names.length - 1) { value /= base; number += 1; }
  return [rounded(value, digits), names[number]].filter(Boolean).join(' ');
};

const duration = (seconds, digits) => {
  const size = Math.abs(seconds);
  for (const [unit, name] of [[604800, 'weeks'], [86400, 'days'], [3600, 'h'], [60, 'min'], [1, 's'], [1e-3, 'ms'], [1e-6, 'µs']]) {
    if (size >= unit) return `${rounded(seconds / unit, digits)} ${name}`;
  }
  return size ? `${rounded(seconds * 1e9, digits)} ns` : '0 s';
};

const COUNTS = ['', 'K', 'Mil', 'Bil', 'Tri'];
const per = (names, suffix) => names.map(name => name + suffix);
const IEC = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'], SI = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

const UNITS = {
  bytes: (value, digits) => scaled(value, digits, 1024, IEC),
  decbytes: (value, digits) => scaled(value, digits, 1000, SI),
  Bps: (value, digits) => scaled(value, digits, 1000, per(SI, '/s')),
  binBps: (value, digits) => scaled(value, digits, 1024, per(IEC, '/s')),
  GBs: (value, digits) => scaled(value * 1e9, digits, 1000, per(SI, '/s')),
  bps: (value, digits) => scaled(value, digits, 1000, ['b/s', 'kb/s', 'Mb/s', 'Gb/s', 'Tb/s']),
  s: duration,
  seconds: duration,
  ms: (value, digits) => duration(value / 1e3, digits),
  percent: (value, digits) => `${rounded(value, digits)}%`,
  '%': (value, digits) => `${rounded(value, digits)}%`,
  percentunit: (value, digits) => `${rounded(value * 100, digits)}%`,
  celsius: (value, digits) => `${rounded(value, digits)} °C`,
  watt: (value, digits) => scaled(value, digits, 1000, ['W', 'kW', 'MW']),
  mwatt: (value, digits) => scaled(value, digits, 1000, ['mW', 'W', 'kW', 'MW']),
  short: (value, digits) => scaled(value, digits, 1000, COUNTS),
  none: (value, digits) => rounded(value, digits),
  '': (value, digits) => scaled(value, digits, 1000, COUNTS),
};
const WORDS = new Map([['ops', 'ops/s'], ['reqps', 'req/s'], ['rowsps', 'rows/s']]);

// How values of a unit are written; a unit that is none of Grafana's is a word behind the number.
const writer = unit => {
  const found = Object.hasOwn(UNITS, unit) ? UNITS[unit] : undefined, word = WORDS.get(unit) ?? unit;
  const write = found ?? ((value, digits) => `${UNITS.short(value, digits)} ${word}`);
  return (value, digits = 4) => (value === null || value === undefined ? '–' : write(value, digits));
};
