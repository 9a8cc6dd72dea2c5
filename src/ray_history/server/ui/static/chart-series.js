// The series of a chart as they are drawn: which are shown, in which color, and how they are stacked.
'use strict';

const COLORS = ['#73bf69', '#f2cc0c', '#5794f2', '#ff9830', '#f2495c', '#b877d9', '#8ab8ff', '#fa6400', '#37872d', '#e0b400',
  '#1f60c4', '#c4162a', '#a352cc', '#96d98d', '#ffcb7d', '#ff7383', '#ca95e5', '#3d71d9'];
const NAMED = new Map(Object.entries({
  red: '#f2495c', orange: '#ff9830', yellow: '#f2cc0c', green: '#73bf69', blue: '#5794f2', purple: '#b877d9' }));

const colorOf = (wanted, number) => {
  if (/^#[0-9a-f]{6}$/i.test(wanted ?? '')) return wanted;
  return NAMED.get(wanted) ?? COLORS[number % COLORS.length];
};
const withAlpha = (color, share) => color + Math.round(Math.min(Math.max(share, 0), 1) * 255).toString(16).padStart(2, '0');

const present = values => values.filter(value => value !== null);
const lastOf = values => { const found = present(values); return found.length ? found[found.length - 1] : null; };

// The series of an answer with what the legend says of them. `toggled` has those that a click has shown or hidden.
const prepared = (chart, toggled = new Map()) => {
  const isZero = series => !series.values.some(value => value);
  const every = chart.series.map((series, number) => ({ ...series, id: `${number} ${series.name}`, number }));
  const kept = chart.hides_zeros && !every.every(isZero) ? every.filter(series => !isZero(series)) : every;
  return kept.map((series, number) => {
    const values = present(series.values);
    return {
      ...series,
      color: colorOf(series.color, number),
      isHidden: toggled.get(series.id) ?? series.hidden,
      isStacked: chart.stacked && series.stacked,
      alpha: (series.fill ?? chart.fill) / 10,
      max: values.length ? values.reduce((a, b) => Math.max(a, b)) : null,
      avg: values.length ? values.reduce((a, b) => a + b, 0) / values.length : null,
      last: values.length ? values[values.length - 1] : null,
    };
  });
};

// The heights at which series are drawn. In a stack, a series without a value adds nothing; where no series of the stack
// has a value, it has a gap.
const heights = (series, steps) => {
  const sums = new Array(steps).fill(0), filled = new Array(steps).fill(false);
  const stack = series.filter(one => one.isStacked && !one.isHidden);
  stack.forEach(one => one.values.forEach((value, step) => { if (value !== null) filled[step] = true; }));
  return series.map(one => {
    if (!one.isStacked || one.isHidden) return one.values;
    return one.values.map((value, step) => {
      sums[step] += value ?? 0;
      return filled[step] ? sums[step] : null;
    });
  });
};

const byLast = series => [...series].sort((a, b) => (b.last ?? -Infinity) - (a.last ?? -Infinity));

// The moments of the values, in seconds.
const moments = chart => Array.from({ length: chart.steps }, (_, step) => (chart.start_ms + step * chart.step_ms) / 1000);
