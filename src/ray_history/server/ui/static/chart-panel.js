// A panel of the page: asks for its chart, and shows it with its legend, or says why there is none.
'use strict';

// The address of the Grafana that this page belongs to.
const GRAFANA = location.pathname.replace(/^(.*\/grafana)\/d(-solo)?\/[^/]+(\/[^/]*)?$/, '$1');

const asked = async (path, parameters = {}, signal = undefined) => {
  const query = new URLSearchParams(given);
  ['from', 'to', 'panelId', 'orgId', 'theme', 'kiosk', 'refresh', 'timezone'].forEach(name => query.delete(name));
  query.set('at', viewedMoment());
  Object.entries(parameters).forEach(([name, value]) => query.set(name, value));
  [...query].forEach(([name, value]) => { if (value === '') query.delete(name); });
  const answer = await fetch(`${GRAFANA}/api/${path}?${query}`, { signal, headers: { Accept: 'application/json' } });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(body.msg || `The server answered ${answer.status}.`);
  return body;
};

const plural = (count, word) => `${count} ${word}${count === 1 ? '' : 's'}`;

class Panel {
  constructor(section, config) {
    this.section = section;
    this.path = `dashboards/${encodeURIComponent(config.uid)}/panels/${section.dataset.panel}`;
    this.isSingle = config.single;
    this.toggled = new Map();
    this.title = section.querySelector('h3');
    this.note = element('span', { class: 'note', role: 'status' });
    this.tableButton = element('button', { type: 'button', class: 'quiet', 'aria-pressed': 'false', hidden: '' }, 'Table');
    this.tableButton.addEventListener('click', () => this.toggleTable());
    this.place = element('div', { class: 'plot' });
    this.legend = element('div', { class: 'legend' });
    this.tip = element('div', { class: 'tip', hidden: '', 'aria-hidden': 'true' });
    const head = element('div', { class: 'head' });
    this.title.replaceWith(head);
    head.append(this.title, this.note, this.tableButton);
    section.append(this.place, this.legend, this.tip);
    section.style.gridColumn = `span ${section.dataset.width}`;
    section.style.setProperty('--rows', section.dataset.height);
    new ResizeObserver(() => this.resize()).observe(this.place);
  }

  // What the answer depends on.
  get wanted() { return `${range.key} ${given}`; }

  async load() {
    this.loading?.abort();
    const loading = this.loading = new AbortController();
    this.loaded = this.wanted;
    this.section.setAttribute('aria-busy', 'true');
    try {
      const parameters = { from: range.from, to: range.to, width: this.section.clientWidth || 600, whole: this.isSingle ? '1' : '' };
      this.chart = await asked(this.path, parameters, loading.signal);
      this.draw();
    } catch (error) {
      if (loading.signal.aborted) return;
      this.say(error.message, true);
    }
    this.section.removeAttribute('aria-busy');
  }

  clear() {
    this.plot?.destroy();
    this.plot = undefined;
    this.tip.hidden = true;
    this.place.replaceChildren();
    this.legend.replaceChildren();
  }

  say(text, mayRetry = false) {
    this.clear();
    const words = element('p', { class: 'words' }, text);
    if (mayRetry) {
      const again = element('button', { type: 'button' }, 'Try again');
      again.addEventListener('click', () => this.load());
      words.append(element('br'), again);
    }
    this.tableButton.hidden = true;
    this.place.append(words);
  }

  draw() {
    const { chart } = this;
    this.series = prepared(chart, this.toggled);
    this.write = writer(chart.unit);
    this.note.textContent = this.note.title = this.series.length ? this.notes().join('. ') : '';
    if (!this.series.length) {
      const isWhole = chart.widened || (!range.from && !range.to);
      this.say(chart.problems.join('\n') || (isWhole ? 'No data' : 'No data in this range'));
      return;
    }
    this.clear();
    this.tableButton.hidden = false;
    if (this.tableButton.ariaPressed === 'true') { this.place.append(this.table()); return; }
    this.describe();
    if (chart.kind === 'piechart' || (chart.legend && chart.kind === 'graph')) this.drawLegend();  // it takes room from the plot
    this.plot = drawn(this.place, chart, this.series, this.write, plot => this.showTip(plot));
    if (this.plot) this.listen();
    this.section.dataset.drawn = chart.kind;
    performance.mark('chart drawn');
  }

  // How the chart differs from what was asked for.
  notes() {
    const { widened, left_out: count, problems } = this.chart;
    return [
      ...(widened ? ['Nothing in the range asked for; this is the whole session'] : []),
      ...(count ? [`${count} series with smaller values left out`] : []),
      ...problems,
    ];
  }

  describe() {
    const { place, chart, title } = this, isOverTime = chart.kind === 'graph';
    place.setAttribute('role', isOverTime ? 'group' : 'img');
    place.setAttribute('aria-label', `${title.textContent}: ${plural(this.series.length, 'line')}, ${fullMoment(chart.from_ms)} to `
      + `${fullMoment(chart.to_ms)}${isOverTime ? '; arrow keys move the cursor, plus and minus zoom' : ''}`);
    if (isOverTime) place.tabIndex = 0;
  }

  resize() {
    const { plot, place } = this, { clientWidth: width, clientHeight: height } = place;
    if (plot && width && height && (plot.width !== width || plot.height !== height)) plot.setSize({ width, height });
  }

  drawLegend() {
    const isPie = this.chart.kind === 'piechart';
    const columns = isPie ? ['last'] : ['max', 'avg', 'last'];
    const rows = byLast(this.series).map(one => {
      const button = element('button', { type: 'button', class: 'name', 'aria-pressed': String(!one.isHidden), title: one.name },
        svg('svg', { class: 'swatch', viewBox: '0 0 14 4', 'aria-hidden': 'true' }, svg('path', {
          d: 'M0 2H14', stroke: one.color, 'stroke-width': 3, ...(one.dashed ? { 'stroke-dasharray': '4 2' } : {}) })), one.name);
      button.addEventListener('click', () => this.toggle(one));
      return element('tr', one.isHidden ? { class: 'off' } : {}, element('td', {}, button),
        ...columns.map(column => element('td', {}, this.write(one[column]))));
    });
    const head = element('tr', {}, element('th', { scope: 'col' }, 'Name'),
      ...columns.map(column => element('th', { scope: 'col' }, column)));
    this.legend.append(element('table', { 'aria-label': `Legend of ${this.title.textContent}` }, element('thead', {}, head), element('tbody', {}, ...rows)));
  }

  toggle(one) {
    this.toggled.set(one.id, !one.isHidden);
    const { scrollTop } = this.legend, index = [...this.legend.querySelectorAll('button')].indexOf(document.activeElement);
    this.draw();
    this.legend.scrollTop = scrollTop;
    this.legend.querySelectorAll('button')[index]?.focus();
  }

  toggleTable() {
    this.tableButton.ariaPressed = String(this.tableButton.ariaPressed !== 'true');
    this.draw();
  }

  // All values as a table, for those who read better than they see.
  table() {
    const shown = this.series.filter(one => !one.isHidden), { chart } = this;
    const head = element('tr', {}, element('th', { scope: 'col' }, `Time (${zoneName})`),
      ...shown.map(one => element('th', { scope: 'col' }, one.name)));
    const rows = moments(chart).map((second, step) => element('tr', {}, element('th', { scope: 'row' }, fullMoment(second * 1000)),
      ...shown.map(one => element('td', {}, this.write(one.values[step], 7)))));
    const table = element('table', { class: 'values' }, element('caption', {}, this.title.textContent), element('thead', {}, head),
      element('tbody', {}, ...rows));
    return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': `Values of ${this.title.textContent}` }, table);
  }

  listen() {
    const { place, plot } = this;
    plot.over.addEventListener('mouseenter', () => { this.isHovered = true; });
    plot.over.addEventListener('mouseleave', () => { this.isHovered = false; this.tip.hidden = true; });
    place.onkeydown = event => this.key(event);
    place.onblur = () => { this.tip.hidden = true; };
  }

  key(event) {
    const { plot, chart } = this, last = chart.steps - 1, at = plot.cursor.idx ?? last;
    const step = { ArrowLeft: Math.max(at - 1, 0), ArrowRight: Math.min(at + 1, last), Home: 0, End: last }[event.key];
    const middle = (chart.start_ms + at * chart.step_ms), width = chart.to_ms - chart.from_ms;
    if (step !== undefined) {
      this.isHovered = true;
      plot.setCursor({ left: plot.valToPos(moments(chart)[step], 'x'), top: plot.bbox.height / devicePixelRatio / 2 });
    } else if (event.key === '+' && width > 2 * SHORTEST_ZOOM * 1000) {
      range.change(Math.round(middle - width / 4), Math.round(middle + width / 4));
    } else if (event.key === '-' || event.key === 'Escape') {
      range.back();
    } else {
      return;
    }
    event.preventDefault();
  }

  showTip(plot) {
    const { idx } = plot.cursor;
    if (!this.isHovered || idx === null || idx === undefined || plot !== this.plot) { this.tip.hidden = true; return; }
    const values = this.series.filter(one => !one.isHidden && one.values[idx] !== null)
      .sort((a, b) => b.values[idx] - a.values[idx]);
    const rows = values.slice(0, 12).map(one => {
      const swatch = svg('svg', { class: 'swatch', viewBox: '0 0 14 4' }, svg('path', { d: 'M0 2H14', stroke: one.color, 'stroke-width': 3 }));
      return element('div', {}, swatch, element('span', {}, one.name), element('b', {}, this.write(one.values[idx])));
    });
    const more = values.length > 12 ? [element('div', {}, `and ${values.length - 12} more`)] : [];
    this.tip.replaceChildren(element('div', {}, fullMoment(plot.data[0][idx] * 1000)), ...rows, ...more);
    this.tip.hidden = false;
    const x = plot.over.offsetLeft + plot.cursor.left, room = this.section.clientWidth;
    const left = x + 16 + this.tip.offsetWidth < room ? x + 16 : Math.max(4, x - 16 - this.tip.offsetWidth);
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${this.place.offsetTop + 8}px`;
  }
}
