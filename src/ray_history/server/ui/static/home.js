// The list of sessions: updates while you type, filters and pages without loading the whole page again.
// The server renders the same page with or without this script, which replaces only <main> and the address.
'use strict';
{
  let running, typing, timer, requests = 0;
  const fleet = () => $('[data-fleet]');

  const show = async (url, { push = false, top = false, quiet = false } = {}) => {
    running?.abort(); running = new AbortController();
    clearTimeout(timer);                           // a refresh must not cancel what the user asked for
    const request = ++requests;
    let text;
    try {
      const options = { signal: running.signal, headers: { Accept: 'text/html' }, credentials: 'same-origin' };
      const answer = await fetch(url, options), type = answer.headers.get('content-type');
      if (!answer.ok || !type?.startsWith('text/html')) throw new Error(answer.status);
      text = await answer.text();
    } catch (error) {
      if (error.name === 'AbortError') return;
      if (quiet) return again();
      location.assign(url); return;                // shows the server's error page
    }
    if (request !== requests) return;      // a newer request is under way
    const fresh = new DOMParser().parseFromString(text, 'text/html'), next = $('[data-fleet]', fresh);
    if (!next) { location.assign(url); return; }
    const at = document.activeElement, key = at && fleet().contains(at) ? at.getAttribute('href') : null;
    const open = $$('details.menu', fleet()).map(d => d.open);
    fleet().replaceWith(document.adoptNode(next));
    if (quiet) $$('details.menu', fleet()).forEach((d, i) => d.open = !!open[i]);
    if (key) $$('a', fleet()).find(a => a.getAttribute('href') === key)?.focus({ preventScroll: true });
    document.title = fresh.title;
    const field = $('#q'), freshField = $('#q', fresh);
    $$('[data-search] input[type=hidden]').forEach(i => i.remove());
    $$('[data-search] input[type=hidden]', fresh).forEach(i => field.form.append(document.adoptNode(i)));
    if (document.activeElement !== field) field.value = freshField.value;
    if (push) history.pushState(null, '', url); else if (!quiet) history.replaceState(null, '', url);
    if (top) scrollTo(0, 0);
    if (!quiet) say(fleet().dataset.announce);
    again();
  };

  // Refreshes the list every `data-again` seconds, unless a menu is open or the tab is hidden.
  const again = () => {
    clearTimeout(timer);
    const seconds = +fleet()?.dataset.again;
    if (!seconds) return;
    timer = setTimeout(() => {
      const isBusy = document.hidden || $('details.menu[open]');
      isBusy ? again() : show(location.href, { quiet: true });
    }, seconds * 1000);
  };
  again();

  const address = form => {
    const pairs = [...new FormData(form)].filter(([, value]) => value !== '');
    return location.pathname + '?' + new URLSearchParams(pairs);
  };
  if (fleet()) {
    $('#q').addEventListener('input', ev => {
      clearTimeout(typing);
      typing = setTimeout(() => show(address(ev.target.form), { push: !new URLSearchParams(location.search).has('q') }), 120);
    });
    addEventListener('submit', ev => {
      if (!ev.target.matches('[data-search], [data-filters]')) return;
      ev.preventDefault(); clearTimeout(typing); show(address(ev.target), { push: true });
    });
    addEventListener('click', ev => {
      const link = ev.target.closest?.('a[href^="?"]');
      const isPlain = !ev.defaultPrevented && !ev.button && !ev.ctrlKey && !ev.metaKey && !ev.shiftKey;
      if (!link || !fleet().contains(link) || !isPlain) return;
      ev.preventDefault();
      show(location.pathname + link.getAttribute('href'), { push: true, top: link.matches('[rel]') });
    });
    addEventListener('popstate', () => {
      show(location.href, {});
      $('#q').value = new URLSearchParams(location.search).get('q') || '';
    });
  }

  // Drag over the chart to select a time range; a click follows the link of the bar.
  let from = null, box = null, moved = false;
  const place = (svg, x) => {
    const [, , count] = svg.dataset.brush.split(',').map(Number), r = svg.getBoundingClientRect();
    return Math.max(0, Math.min(count, (x - r.left) / r.width * count));
  };
  addEventListener('dragstart', ev => ev.target.closest?.('[data-brush]') && ev.preventDefault());
  addEventListener('pointerdown', ev => {
    const svg = ev.target.closest?.('[data-brush]');
    if (svg && !ev.button) { from = { svg, at: place(svg, ev.clientX) }; moved = false; }
  });
  addEventListener('pointermove', ev => {
    if (!from) return;
    const to = place(from.svg, ev.clientX), [, , count] = from.svg.dataset.brush.split(',').map(Number);
    if (!moved && Math.abs(to - from.at) < .6) return;
    moved = true;
    box ||= from.svg.appendChild(document.createElementNS('http://www.w3.org/2000/svg', 'rect'));
    const lo = Math.floor(Math.min(from.at, to)), hi = Math.ceil(Math.max(from.at, to));
    const height = from.svg.getAttribute('height') - 18;
    const attributes = { class: 'f-sel', x: lo / count * 100 + '%', width: (hi - lo) / count * 100 + '%', height };
    for (const [name, value] of Object.entries(attributes)) box.setAttribute(name, value);
    from.lo = lo; from.hi = hi;
  });
  addEventListener('pointerup', () => {
    if (from && moved) {
      const [begin, step] = from.svg.dataset.brush.split(',').map(Number), url = new URL(location.href);
      const stamp = bin => new Date((begin + bin * step) * 1000).toISOString().slice(0, 19) + 'Z';
      url.searchParams.delete('after');
      url.searchParams.set('from', stamp(from.lo)); url.searchParams.set('to', stamp(from.hi));
      show(url.pathname + url.search, { push: true });
      const stop = ev => ev.preventDefault();                            // the click that ends the drag
      addEventListener('click', stop, true); setTimeout(() => removeEventListener('click', stop, true));
    }
    from = box = null;
  });
}
