// The history bar. It runs before the dashboard does, so that all that the dashboard asks is asked of one moment: the
// `at` of the page's own address, which is kept in links that are handed on.
(() => {
  const here = new URL(location.href), at = here.searchParams.get('at');
  const session = new URL('.', here).pathname;

  // What is asked for: at the moment that is shown; and for the page of logs all nodes that left some, since by itself
  // it lists none but those that were alive.
  const meant = address => {
    let url;
    try { url = new URL(address, document.baseURI); } catch { return address; }
    const name = url.pathname.startsWith(session) ? url.pathname.slice(session.length) : '';
    if (url.origin !== here.origin || !name || name.startsWith('static/')) return address;
    if (at && !url.searchParams.has('at')) url.searchParams.set('at', at);
    if (name === 'nodes' && /^#\/(new\/)?logs/.test(location.hash)) url.searchParams.set('view', 'logs');
    return url.href;
  };

  const ask = window.fetch, open = XMLHttpRequest.prototype.open;
  window.fetch = (what, how) => ask(what instanceof Request ? new Request(meant(what.url), what) : meant(String(what)), how);
  XMLHttpRequest.prototype.open = function (method, address, ...rest) { return open.call(this, method, meant(String(address)), ...rest); };
  if (at) addEventListener('click', event => {
    const link = event.target.closest?.('a[href]');
    if (link && !link.closest('.hbar')) { const there = meant(link.href); if (there !== link.href) link.href = there; }
  }, true);

  // What was running at the moment that is shown ran until then, not until today: the dashboard's clock starts there.
  const shown = Number(document.currentScript.dataset.now), RealDate = Date;
  if (shown) {
    const behind = RealDate.now() - shown, now = () => RealDate.now() - behind;
    window.Date = class extends RealDate {
      constructor(...told) { if (told.length) super(...told); else super(now()); }
      static now() { return now(); }
    };
  }

  const go = change => { const url = new URL(location.href); change(url.searchParams); location.assign(url); };

  addEventListener('DOMContentLoaded', () => {
    const bar = document.querySelector('.hbar'), scrub = bar?.querySelector('[data-scrub]');
    if (!bar) return;
    if (scrub) {
      const slider = scrub.querySelector('input'), shown = scrub.querySelector('output');
      const iso = () => new Date(+slider.value).toISOString();
      const tell = () => { shown.value = iso().slice(11, 19); slider.setAttribute('aria-valuetext', shown.value + ' UTC'); };
      slider.addEventListener('input', tell);
      slider.addEventListener('change', () => go(query => query.set('at', iso())));
      if (at) tell();
      scrub.querySelector('[data-end]')?.addEventListener('click', event => { event.preventDefault(); go(query => query.delete('at')); });
    }
    const said = bar.querySelector('[data-said]');
    bar.querySelector('[data-share]').addEventListener('click', async () => {
      try { await navigator.clipboard.writeText(location.href); said.textContent = 'Copied'; } catch { said.textContent = 'Copy the address'; }
      setTimeout(() => { said.textContent = 'Share'; }, 1500);
    });
    const note = document.querySelector('[data-metrics]');
    const turn = () => {
      note.hidden = !/^#\/(new\/)?metrics/.test(location.hash);
      // The dashboard asks people to set up Grafana, which brings nothing back: marked here, said otherwise by hbar.css.
      document.querySelectorAll('.MuiAlert-root:not([data-hb-not-kept])').forEach(alert => {
        if (alert.textContent.startsWith('Set up Prometheus and Grafana')) alert.setAttribute('data-hb-not-kept', '');
      });
    };
    addEventListener('hashchange', turn);
    addEventListener('popstate', turn);
    new MutationObserver(turn).observe(document.getElementById('root') ?? document.body, { childList: true, subtree: true });
    turn();
  });
})();
