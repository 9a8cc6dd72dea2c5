// Draws a chart: lines and stacks by uPlot; bars, numbers, gauges and pies as SVG and text.
'use strict';

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => { if (value !== undefined) made.setAttribute(key, value); });
  made.append(...children);
  return made;
};
const svg = (name, attributes = {}, ...children) => {
  const made = document.createElementNS('http://www.w3.org/2000/svg', name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...children);
  return made;
};
// A color or font of the theme, resolved as a canvas needs it.
const themed = (property, name) => {
  const probe = element('span');
  probe.style.setProperty(property, `var(${name})`);
  document.body.append(probe);
  const value = getComputedStyle(probe)[property];
  probe.remove();
  return value;
};
const ruler = document.createElement('canvas').getContext('2d');
const widest = (texts, font) => {
  ruler.font = font;
  return Math.max(0, ...texts.map(text => ruler.measureText(text).width));
};

const SHORTEST_ZOOM = 30;  // seconds: two scrapes

// Bands between the lines of a stack, and the fill below the lowest one.
const fills = series => {
  const bands = [], below = new Array(series.length).fill(undefined);
  let lower = 0;
  series.forEach((one, number) => {
    if (one.isHidden) return;
    const fill = one.alpha ? withAlpha(one.color, one.isStacked ? Math.max(one.alpha * .8, .1) : one.alpha * .8) : undefined;
    if (one.isStacked && lower && fill) bands.push({ series: [number + 1, lower], fill });
    else below[number] = fill;
    if (one.isStacked) lower = number + 1;
  });
  return { bands, below };
};

// The places of values without a value beside them, which a line cannot show.
const alone = values => values.flatMap((value, step) =>
  (value !== null && (values[step - 1] ?? null) === null && (values[step + 1] ?? null) === null ? [step] : []));

const lineOptions = (series, chart) => {
  const { bands, below } = fills(series);
  const lines = series.map((one, number) => ({
    label: one.name,
    show: !one.isHidden,
    stroke: one.color,
    width: one.dashed ? 1.5 : chart.line_width,
    dash: one.dashed ? [8, 5] : undefined,
    fill: below[number],
    spanGaps: chart.connects_gaps && !one.isStacked,
    points: { show: false, size: 5, fill: one.color, filter: () => alone(one.values) },
  }));
  return { bands, lines };
};

const axes = (chart, write) => {
  const font = `11px ${themed('fontFamily', '--font')}`, stroke = themed('color', '--dim'), grid = themed('color', '--grid');
  const look = () => ({ stroke, font, ticks: { show: false }, grid: { stroke: grid, width: 1 } });
  const labels = values => {
    const texts = values.map(value => write(value));
    return new Set(texts).size < texts.length ? values.map(value => write(value, 7)) : texts;
  };
  return [
    { ...look(), size: 30, space: 64, values: (_, splits) => tickLabels(splits) },
    { ...look(), size: (_, texts) => 14 + Math.ceil(widest(texts ?? [], font)), values: (_, splits) => labels(splits) },
  ];
};

// The limits of the vertical axis: those of the panel, or 0 and a little more than the largest value.
const limits = chart => (_, least, most) => {
  const low = chart.min ?? Math.min(0, least ?? 0), high = chart.max ?? (most ?? 0);
  return [low, high > low ? high + (chart.max === null ? (high - low) * .06 : 0) : low + 1];
};

const lineChart = (place, chart, series, write, onCursor) => {
  const { bands, lines } = lineOptions(series, chart);
  const zoom = plot => {
    const { left, width } = plot.select;
    if (width < 5) return;
    let [from, to] = [left, left + width].map(x => plot.posToVal(x, 'x'));
    if (to - from < SHORTEST_ZOOM) {
      const middle = (from + to) / 2;
      [from, to] = [middle - SHORTEST_ZOOM / 2, middle + SHORTEST_ZOOM / 2];
    }
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    range.change(Math.round(from * 1000), Math.round(to * 1000));
  };
  const options = {
    width: Math.max(place.clientWidth, 80),
    height: Math.max(place.clientHeight, 60),
    padding: [8, 18, 0, 0],
    tzDate: seconds => uPlot.tzDate(new Date(seconds * 1000), zoneName),
    legend: { show: false },
    bands,
    cursor: {
      y: false,
      // The others follow the cursor, and not the drag: the range is changed once.
      sync: { key: 'charts', setSeries: false, filters: { pub: type => type === 'mousemove' || type === 'mouseleave', sub: () => true } },
      drag: { x: true, y: false, setScale: false },
      points: { size: 6 },
      bind: { dblclick: () => () => range.back() },
    },
    scales: { x: { time: true, min: chart.from_ms / 1000, max: chart.to_ms / 1000, range: (_, low, high) => [low, high] }, y: { range: limits(chart) } },
    series: [{}, ...lines],
    axes: axes(chart, write),
    hooks: { setSelect: [zoom], setCursor: [plot => onCursor(plot)] },
  };
  options.scales.x.range = () => [chart.from_ms / 1000, Math.max(chart.to_ms, chart.from_ms + 1000) / 1000];
  return new uPlot(options, [moments(chart), ...heights(series, chart.steps)], place);
};

// One bar for each series, with its last value.
const barChart = (place, series, write) => {
  const bars = series.filter(one => !one.isHidden && one.last !== null), most = Math.max(...bars.map(one => one.last), 0) || 1;
  const wide = 100 / Math.max(bars.length, 1);
  const drawn = bars.flatMap((one, number) => {
    const height = 82 * Math.max(one.last, 0) / most, x = number * wide + wide * .1;
    const bar = svg('rect', { x: `${x}%`, width: `${wide * .8}%`, y: `${90 - height}%`, height: `${height}%`, fill: one.color });
    bar.append(svg('title', {}, `${one.name}: ${write(one.last)}`));
    const texts = [svg('text', { x: `${x + wide * .4}%`, y: '97%', class: 'label' }, one.name)];
    if (one.last > 0) texts.push(svg('text', { x: `${x + wide * .4}%`, y: `${89 - height}%`, class: 'label' }, write(one.last, 3)));
    return [bar, ...texts];
  });
  place.append(svg('svg', { class: 'bars', 'aria-hidden': 'true' }, ...drawn));
};

const numbers = (place, series, write) => {
  const shown = byLast(series.filter(one => !one.isHidden && one.last !== null));
  place.append(element('div', { class: 'numbers' }, ...shown.map(one => element(
    'div', {}, element('strong', {}, write(one.last)), element('span', {}, one.name)))));
};

const arc = (from, to, radius) => {
  const point = share => [50 + radius * Math.sin(share * 2 * Math.PI), 50 - radius * Math.cos(share * 2 * Math.PI)].join(' ');
  return `M ${point(from)} A ${radius} ${radius} 0 ${to - from > .5 ? 1 : 0} 1 ${point(to)}`;
};

const gauges = (place, chart, series, write) => {
  const shown = byLast(series.filter(one => !one.isHidden && one.last !== null));
  const least = chart.min ?? 0, most = chart.max ?? Math.max(...shown.map(one => one.max), least + 1e-9);
  place.append(element('div', { class: 'numbers' }, ...shown.map(one => {
    const share = Math.min(Math.max((one.last - least) / (most - least), 0), 1);
    const dial = svg('svg', { viewBox: '0 8 100 60', class: 'gauge', 'aria-hidden': 'true' },
      svg('path', { d: arc(-.27, .27, 38), class: 'dial' }));
    if (share > 0) dial.append(svg('path', { d: arc(-.27, -.27 + .54 * share, 38), stroke: one.color }));
    return element('div', {}, dial, element('strong', {}, write(one.last)), element('span', {}, one.name));
  })));
};

const pie = (place, series, write) => {
  const shown = byLast(series.filter(one => !one.isHidden && one.last > 0)), sum = shown.reduce((total, one) => total + one.last, 0);
  let begin = 0;
  const parts = shown.map(one => {
    const share = one.last / sum, end = begin + Math.min(share, .9999);
    const part = svg('path', { d: `${arc(begin, end, 40)} L 50 50 Z`, fill: one.color });
    part.append(svg('title', {}, `${one.name}: ${write(one.last)}, ${rounded(share * 100, 3)}%`));
    begin += share;
    return part;
  });
  place.append(svg('svg', { viewBox: '5 5 90 90', class: 'pie', 'aria-hidden': 'true' }, ...parts));
};

// Draws into an empty place; returns the uPlot of a chart over time.
const drawn = (place, chart, series, write, onCursor) => {
  switch (chart.kind) {
    case 'bars': barChart(place, series, write); return undefined;
    case 'stat': numbers(place, series, write); return undefined;
    case 'gauge': gauges(place, chart, series, write); return undefined;
    case 'piechart': pie(place, series, write); return undefined;
    default: return lineChart(place, chart, series, write, onCursor);
  }
};
