// The bar above the dashboard of a stored session. It runs before the dashboard does, so that every request of the
// dashboard carries the moment (`at`) of the page's own address. Shared links keep the moment.
(() => {
  const here = new URL(location.href), at = here.searchParams.get('at');
  const session = new URL('.', here).pathname;

  // Adds `at` to requests below the session. On the Logs page it also asks for every node that left logs: by itself the
  // dashboard lists only nodes that are alive.
  const rewritten = address => {
    let url;
    try { url = new URL(address, document.baseURI); } catch { return address; }
    const name = url.pathname.startsWith(session) ? url.pathname.slice(session.length) : '';
    if (url.origin !== here.origin || !name || name.startsWith('static/')) return address;
    if (at && !url.searchParams.has('at')) url.searchParams.set('at', at);
    if (name === 'nodes' && /^#\/(new\/)?logs/.test(location.hash)) url.searchParams.set('view', 'logs');
    return url.href;
  };

  const { fetch } = window, { open } = XMLHttpRequest.prototype;
  window.fetch = (resource, options) => {
    const isRequest = resource instanceof Request;
    return fetch(isRequest ? new Request(rewritten(resource.url), resource) : rewritten(String(resource)), options);
  };
  XMLHttpRequest.prototype.open = function (method, address, ...rest) {
    return open.call(this, method, rewritten(String(address)), ...rest);
  };
  if (at) addEventListener('click', event => {
    const link = event.target.closest?.('a[href]');
    if (!link || link.closest('.hbar')) return;
    const address = rewritten(link.href);
    if (address !== link.href) link.href = address;
  }, true);

  // The dashboard computes durations of running tasks with its clock, so the clock starts at the moment that is shown.
  const shown = Number(document.currentScript.dataset.now), RealDate = Date;
  if (shown) {
    const offset = RealDate.now() - shown, now = () => RealDate.now() - offset;
    window.Date = class extends RealDate {
      constructor(...parts) { if (parts.length) super(...parts); else super(now()); }
      static now() { return now(); }
    };
  }

  const go = change => { const url = new URL(location.href); change(url.searchParams); location.assign(url); };

  // Sessions that are entered by cookies are the same for all tabs: the rows of this page would come from the session that
  // another tab entered last, below the bar of this one.
  const watchSession = bar => {
    if (/\/s(\/[^/]+){3}\/$/.test(session)) return;
    const alert = document.querySelector('[data-other]'), { session: own, address } = bar.dataset;
    const check = async () => {
      if (document.hidden) return;
      try {
        const answer = await fetch(`${session}_status`);
        const entered = answer.ok ? (await answer.json()).session : own;
        alert.hidden = entered === own;
        alert.querySelector('b').textContent = entered;
        alert.querySelector('[data-back]').href = address + location.hash;
      } catch {
        // The server does not answer; the page itself shows that.
      }
    };
    addEventListener('focus', check);
    document.addEventListener('visibilitychange', check);
    setInterval(check, 5000);
    check();
  };

  addEventListener('DOMContentLoaded', () => {
    const bar = document.querySelector('.hbar'), scrub = bar?.querySelector('[data-scrub]');
    if (!bar) return;
    if (scrub) {
      const slider = scrub.querySelector('input'), output = scrub.querySelector('output');
      const iso = () => new Date(+slider.value).toISOString();
      const update = () => {
        output.value = iso().slice(11, 19);
        slider.setAttribute('aria-valuetext', output.value + ' UTC');
      };
      slider.addEventListener('input', update);
      slider.addEventListener('change', () => go(query => query.set('at', iso())));
      if (at) update();
      scrub.querySelector('[data-end]')?.addEventListener('click', event => {
        event.preventDefault();
        go(query => query.delete('at'));
      });
    }
    const label = bar.querySelector('[data-label]');
    bar.querySelector('[data-share]').addEventListener('click', async () => {
      try {
        await navigator.clipboard.writeText(location.href);
        label.textContent = 'Copied';
      } catch {
        label.textContent = 'Copy the address';
      }
      setTimeout(() => { label.textContent = 'Share'; }, 1500);
    });
    watchSession(bar);
    if (bar.dataset.asOf) document.documentElement.style.setProperty('--hb-as-of', JSON.stringify(bar.dataset.asOf));
    const note = document.querySelector('[data-metrics]');
    const update = () => {
      if (note) note.hidden = !/^#\/(new\/)?metrics/.test(location.hash);
      // Setting up Grafana now would not bring back past metrics: hbar.css replaces the text of marked alerts.
      document.querySelectorAll('.MuiAlert-root:not([data-hb-no-metrics])').forEach(alert => {
        if (alert.textContent.startsWith('Set up Prometheus and Grafana')) alert.setAttribute('data-hb-no-metrics', '');
      });
    };
    addEventListener('hashchange', update);
    addEventListener('popstate', update);
    new MutationObserver(update).observe(document.body, { childList: true, subtree: true });
    update();
  });
})();
