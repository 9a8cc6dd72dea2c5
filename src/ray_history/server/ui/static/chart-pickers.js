// What the reader of a dashboard chooses: the range of time, and the values of its variables.
'use strict';

// All samples of a session have the same values of these.
const OF_SESSION = new Set(['SessionName', 'Cluster']);
const PARTS = [[300, '5 minutes'], [900, '15 minutes'], [3600, 'hour'], [21600, '6 hours'], [86400, '24 hours']];

// The ranges that are shorter than the session.
const presets = ({ from_ms: first, to_ms: last }) => {
  const seconds = (last - first) / 1000, shorter = PARTS.filter(([length]) => length < seconds);
  const begin = shorter.slice(0, 1).map(([length, name]) => [`First ${name}`, first, first + length * 1000]);
  return [['Whole session', '', ''], ...begin, ...shorter.map(([length, name]) => [`Last ${name}`, `now-${length}s`, 'now'])];
};

class TimePicker {
  constructor(select, label, back) {
    [this.select, this.label, this.back] = [select, label, back];
    select.addEventListener('change', () => range.change(...select.value.split(' ')));
    back.addEventListener('click', () => range.back());
    range.listeners.push(() => this.update());
    this.offer([['Whole session', '', '']]);
  }

  offer(choices) {
    this.choices = choices;
    this.update();
  }

  update() {
    const isPreset = this.choices.some(([, from, to]) => `${from} ${to}` === range.key);
    const shown = isPreset ? this.choices : [...this.choices, ['Zoomed in', range.from, range.to]];
    this.select.replaceChildren(...shown.map(([name, from, to]) => new Option(name, `${from} ${to}`)));
    this.select.value = range.key;
    this.back.hidden = !range.earlier.length;
  }

  show(chart) { this.label.textContent = `${fullMoment(chart.from_ms)} – ${fullMoment(chart.to_ms)}`; }
}

class VariablePicker {
  constructor(variable, config, onChange) {
    this.variable = variable;
    this.parameter = `var-${variable.name}`;
    this.path = `dashboards/${encodeURIComponent(config.uid)}/variables/${encodeURIComponent(variable.name)}`;
    this.select = element('select', {});
    this.label = element('label', {}, element('span', {}, variable.label), this.select);
    this.select.addEventListener('change', () => {
      given.delete(this.parameter);
      if (this.select.value) given.set(this.parameter, this.select.value);
      onChange();
    });
    this.offer([]);
  }

  offer(values) {
    const chosen = given.getAll(this.parameter).filter(value => !['', '$__all', 'All', 'undefined'].includes(value));
    const known = new Set([...values, ...chosen.length === 1 ? chosen : []]);
    const options = this.variable.all ? [new Option('All', '')] : [];
    if (!this.variable.all && this.variable.default) known.add(this.variable.default);
    if (chosen.length > 1) options.push(new Option(chosen.join(' + '), '\0'));
    this.select.replaceChildren(...options, ...[...known].map(value => new Option(value, value)));
    this.select.value = chosen.length > 1 ? '\0' : chosen[0] ?? (this.variable.all ? '' : this.variable.default);
    this.label.hidden = known.size < 2 && !chosen.length;
  }

  async load() {
    try {
      this.offer((await asked(this.path)).values);
    } catch (error) {
      this.label.title = error.message;
    }
  }
}

const variablePickers = (place, config, onChange) => {
  const pickers = config.variables
    .filter(variable => !variable.hidden && !OF_SESSION.has(variable.name))
    .map(variable => new VariablePicker(variable, config, onChange));
  place.append(...pickers.map(picker => picker.label));
  return pickers;
};
