// Shared by all pages. Every page works without it.
'use strict';
const $ = (s, r = document) => r.querySelector(s), $$ = (s, r = document) => [...r.querySelectorAll(s)];
const say = t => { const n = $('#live'); if (n) n.textContent = t; };

// Theme: auto, light, dark. The server reads the cookie and renders <html data-theme>, so the page does not flash.
// themeMode is the localStorage key of the Ray Dashboard, which has the same origin and follows the choice.
const themes = ['auto', 'light', 'dark'];
let store;
try { store = localStorage; store.getItem('themeMode'); } catch { store = { getItem() {}, setItem() {}, removeItem() {} }; }
const setTheme = t => {
  t === 'light' || t === 'dark' ? document.documentElement.dataset.theme = t : delete document.documentElement.dataset.theme;
  const b = $('[data-theme-toggle]');
  if (b) b.title = b.ariaLabel = 'Theme: ' + (t === 'auto' ? 'follows your system' : t);
};
const forced = new URLSearchParams(location.search).get('theme');
setTheme(themes.includes(forced) ? forced : store.getItem('themeMode') || document.documentElement.dataset.theme || 'auto');
$('[data-theme-toggle]')?.addEventListener('click', () => {
  const t = themes[(themes.indexOf(document.documentElement.dataset.theme || 'auto') + 1) % 3];
  t === 'auto' ? store.removeItem('themeMode') : store.setItem('themeMode', t);
  document.cookie = `theme=${t};path=/;max-age=31536000;samesite=lax`;
  setTheme(t); say('Theme ' + t);
});

// Keys: / search, j k rows (Enter follows the link), Esc closes menus.
addEventListener('keydown', ev => {
  if (ev.key === 'Escape') return $$('details.menu[open]').forEach(d => { d.open = false; $('summary', d).focus(); });
  if (ev.target.closest?.('input, select, textarea') || ev.ctrlKey || ev.metaKey || ev.altKey) return;
  if (ev.key === '/' && $('[data-slash]')) { ev.preventDefault(); $('[data-slash]').focus(); $('[data-slash]').select(); }
  if (ev.key === 'j' || ev.key === 'k') {
    const rows = $$('[data-rows] .name a'), i = rows.indexOf(document.activeElement);
    rows[Math.max(0, Math.min(rows.length - 1, i + (ev.key === 'j' ? 1 : -1)))]?.focus();
  }
});

// Listeners are on the document, so that they survive the replacement of parts of a page.
addEventListener('click', async ev => {
  $$('details.menu[open]').forEach(d => d.contains(ev.target) || (d.open = false));
  const copy = ev.target.closest?.('[data-copy]'), reveal = ev.target.closest?.('[data-reveal]');
  if (copy) {                                  // data-copy="text", or empty for the neighbouring <code>
    ev.preventDefault();
    const text = copy.dataset.copy || $('code', copy.parentNode).textContent;
    try { await navigator.clipboard.writeText(text); } catch { return say('Copy failed'); }
    const use = $('use', copy), old = use?.getAttribute('href');
    use?.setAttribute('href', '#i-check'); say('Copied');
    if (old !== '#i-check') setTimeout(() => use?.setAttribute('href', old), 1500);
  }
  if (reveal) {
    const field = document.getElementById(reveal.dataset.reveal);
    field.type = field.type === 'password' ? 'text' : 'password';
    reveal.lastChild.textContent = field.type === 'password' ? 'Show' : 'Hide';
  }
});
addEventListener('change', ev => ev.target.matches?.('.chips input[type=checkbox]') && ev.target.form.requestSubmit());
