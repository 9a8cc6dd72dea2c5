// The page of a dashboard, or of one panel: asks for the charts that are visible.
'use strict';
(() => {
  const config = JSON.parse(document.body.dataset.config);
  const panels = [...document.querySelectorAll('.panel')].map(section => new Panel(section, config));
  const POLL = 15_000, MARGIN = 300;

  // By their places, since observers are silent in a tab in the background.
  const isVisible = panel => {
    const { top, bottom, width } = panel.section.getBoundingClientRect();
    return width > 0 && bottom > -MARGIN && top < innerHeight + MARGIN;
  };
  const AT_ONCE = 3, afterFirst = [];
  // Old dashboards have a page for each of 61 panels. One that is not in sight yet waits, unless its tab is in the
  // background, where nothing tells when it will be.
  let isInSight = !config.single || parent === window || document.hidden;
  let picker, loading = 0;
  // From the top, a few at a time, so that the first charts do not wait for the last.
  const loadVisible = () => {
    while (isInSight && loading < AT_ONCE) {
      const panel = panels.find(one => one.loaded !== one.wanted && isVisible(one));
      if (!panel) return;
      loading += 1;
      panel.load().finally(() => {
        loading -= 1;
        if (panel.chart && picker) picker.show(panel.chart);
        afterFirst.splice(0).forEach(work => work());
        loadVisible();
      });
    }
  };

  if (config.single) range.set(given.get('from') ?? '', given.get('to') ?? '');
  range.listeners.push(loadVisible);
  loadVisible();
  const look = entries => {
    isInSight ||= entries.some(entry => entry.isIntersecting);
    loadVisible();
  };
  new IntersectionObserver(look, { rootMargin: `${MARGIN}px` }).observe(document.body);
  ['scroll', 'resize'].forEach(event => addEventListener(event, loadVisible, { passive: true, capture: true }));
  document.querySelectorAll('details').forEach(row => row.addEventListener('toggle', loadVisible));
  // Colors of axes are those of the theme.
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => panels.forEach(panel => panel.chart && panel.draw()));

  if (!config.single) {
    const find = name => document.querySelector(`[data-${name}]`);
    picker = new TimePicker(find('times'), find('range'), find('back'));
    const variables = variablePickers(find('pickers'), config, () => { variables.forEach(one => one.load()); loadVisible(); });
    // After the first chart, which nothing should delay.
    afterFirst.push(async () => {
      variables.forEach(one => one.load());
      try {
        picker.offer(presets(await asked('range')));
      } catch (error) {
        picker.label.textContent = error.message;
      }
    });
  }

  // A session that is still written: its charts are drawn again when there are new samples.
  if (config.grows && !viewedMoment()) {
    let last;
    const check = async () => {
      if (document.hidden) return;
      try {
        const available = await asked('range'), newest = available.to_ms;
        if (last !== undefined && newest !== last) {
          panels.forEach(panel => { panel.loaded = undefined; });
          loadVisible();
          picker?.offer(presets(available));
        }
        last = newest;
      } catch {
        // The next time may be better; what is drawn stays true.
      }
    };
    setInterval(check, POLL);
    document.addEventListener('visibilitychange', check);
    afterFirst.push(check);
  }
})();
