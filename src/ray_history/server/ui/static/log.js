// The page of a log: lines are added while one scrolls, found, marked and followed. The page works without it.
'use strict';
const MOST_PARTS = 12, FOLLOW_MS = 2000;

// ---- more lines, before and after those that are shown ----
const parts = log => $$('.part', log);
const fetchPart = async (log, place) => {
  const answer = await fetch(`${log.dataset.log}&part=1&${place}`);
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).msg || `status ${answer.status}`);
  const holder = document.createElement('template');
  holder.innerHTML = await answer.text();
  return $('.part', holder.content);
};
const edge = (log, side) => $(`[data-edge=${side}]`, log);
const label = (log, side) => {
  const part = side === 'before' ? parts(log)[0] : parts(log).at(-1), line = edge(log, side);
  const more = side === 'before' ? +part.dataset.start > +part.dataset.low : +part.dataset.end < +part.dataset.high;
  line.textContent = more ? 'Loading…' : line.dataset.text;
  line.toggleAttribute('data-more', more);
};
const busy = new WeakSet();
const extend = async (log, side) => {
  if (busy.has(log) || !edge(log, side).hasAttribute('data-more')) return;
  busy.add(log);
  try {
    const near = side === 'before' ? parts(log)[0] : parts(log).at(-1);
    const part = await fetchPart(log, side === 'before' ? `before=${near.dataset.start}` : `from=${near.dataset.end}`);
    if (side === 'before') {
      const height = log.scrollHeight;
      near.before(part);
      log.scrollTop += log.scrollHeight - height;
      if (parts(log).length > MOST_PARTS) parts(log).at(-1).remove();
    } else {
      near.after(part);
      if (parts(log).length > MOST_PARTS) {
        const height = log.scrollHeight;
        parts(log)[0].remove();
        log.scrollTop -= height - log.scrollHeight;
      }
    }
    label(log, 'before'); label(log, 'after'); mark();
  } catch (error) {
    edge(log, side).textContent = `These lines could not be loaded: ${error.message}`;
  } finally { busy.delete(log); }
};
const jump = async (log, place) => {
  const part = await fetchPart(log, place);
  parts(log).slice(1).forEach(each => each.remove());
  parts(log)[0].replaceWith(part);
  label(log, 'before'); label(log, 'after'); mark();
};

// ---- links to lines: #L12 or #L12-20 ----
const wanted = () => /^#L(\d+)(?:-(\d+))?$/.exec(location.hash);
const showLine = async () => {
  const found = wanted(), log = $('[data-log]');
  $$('.ln.chosen').forEach(each => each.classList.remove('chosen'));
  if (!found || !log) return;
  if (!document.getElementById('L' + found[1])) {
    try { await jump(log, `line=${found[1]}`); } catch (error) { return say(error.message); }
  }
  for (let n = +found[1]; n <= +(found[2] || found[1]); n++) document.getElementById('L' + n)?.classList.add('chosen');
  document.getElementById('L' + found[1])?.scrollIntoView({ block: 'center' });
};
addEventListener('hashchange', showLine);
addEventListener('click', ev => {
  const link = ev.target.closest?.('.ln > a'), found = wanted();
  if (!link || !ev.shiftKey || !found) return;
  ev.preventDefault();
  const lines = [+found[1], +link.textContent].sort((a, b) => a - b);
  location.hash = `L${lines[0]}-${lines[1]}`;
});

// ---- find ----
let matches = [], at = -1, text = '';
const status = t => { $('[data-found]').textContent = t; };
const mark = () => {
  if (!window.Highlight) return;
  CSS.highlights.delete('found');
  if (!text) return;
  const ranges = [], walker = document.createTreeWalker($('.log-panes'), NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const low = node.data.toLowerCase();
    for (let i = low.indexOf(text); i >= 0 && ranges.length < 5000; i = low.indexOf(text, i + text.length)) {
      const range = new Range(); range.setStart(node, i); range.setEnd(node, i + text.length); ranges.push(range);
    }
  }
  CSS.highlights.set('found', new Highlight(...ranges));
};
const step = async by => {
  if (!matches.length) return;
  at = (at + by + matches.length) % matches.length;
  const { log, start, line } = matches[at];
  const find = () => $(`.ln[data-at="${start}"]`, log);
  if (!find()) try { await jump(log, `from=${start}`); } catch (error) { return status(error.message); }
  $$('.ln.hit').forEach(each => each.classList.remove('hit'));
  find()?.classList.add('hit');
  find()?.scrollIntoView({ block: 'center' });
  status(`${at + 1} of ${matches.length}${matches.more ? '+' : ''}${line ? `, line ${line}` : ''}`);
};
const find = async value => {
  text = value.toLowerCase(); matches = []; at = -1;
  $$('.ln.hit').forEach(each => each.classList.remove('hit'));
  $$('[data-step]').forEach(each => { each.hidden = true; });
  mark();
  if (!value) return status('');
  status('Searching…');
  for (const log of $$('[data-log]')) {
    let from = 0;
    while (from !== null && matches.length < 1000) {
      const answer = await fetch(`${log.dataset.search}&q=${encodeURIComponent(value)}&from=${from}`);
      const body = await answer.json();
      if (text !== value.toLowerCase()) return;       // another search began meanwhile
      if (!answer.ok) return status(body.msg);
      matches.push(...body.matches.map(each => ({ log, ...each })));
      from = body.next;
      if (from !== null) status(`${matches.length} so far, ${Math.round(body.searched[1] / 1e6)} MB searched…`);
    }
    matches.more = from !== null;
  }
  if (!matches.length) return status('Not found');
  $$('[data-step]').forEach(each => { each.hidden = false; });
  step(1);
};

// ---- the toolbar ----
const tools = $('.log-tools');
if (tools) {
  const field = $('input[name=find]', tools);
  field.disabled = false;
  tools.addEventListener('submit', ev => { ev.preventDefault(); field.value.toLowerCase() === text && matches.length ? step(1) : find(field.value); });
  field.addEventListener('keydown', ev => { if (ev.key === 'Enter' && ev.shiftKey) { ev.preventDefault(); step(-1); } });
  $$('[data-step]').forEach(each => each.addEventListener('click', () => step(+each.dataset.step)));
  $$('[data-toggle]').forEach(each => {
    const name = each.dataset.toggle, apply = off => {
      $('.log-panes').classList.toggle(name, off); each.setAttribute('aria-pressed', String(!off));
    };
    each.hidden = false;
    apply(store.getItem('log-' + name) === 'off');
    each.addEventListener('click', () => {
      const off = each.ariaPressed === 'true';
      off ? store.setItem('log-' + name, 'off') : store.removeItem('log-' + name);
      apply(off);
    });
  });
  const follow = $('[data-follow]', tools);
  if (follow) {
    follow.hidden = false;
    let timer = 0;
    const look = async () => {
      for (const log of $$('[data-log][data-growing]')) {
        try {
          const part = await fetchPart(log, `from=${parts(log).at(-1).dataset.end}`);
          if (+part.dataset.end > +part.dataset.start) { parts(log).at(-1).after(part); log.scrollTop = log.scrollHeight; }
          if (parts(log).length > MOST_PARTS) parts(log)[0].remove();
        } catch (error) { status(error.message); }
      }
      if (follow.ariaPressed === 'true') timer = setTimeout(look, FOLLOW_MS);
    };
    follow.addEventListener('click', () => {
      const on = follow.ariaPressed !== 'true';
      follow.setAttribute('aria-pressed', String(on));
      clearTimeout(timer);
      if (on) look();
    });
  }
}
const seen = new IntersectionObserver(found => found.forEach(each => {
  if (each.isIntersecting) extend(each.target.closest('[data-log]'), each.target.dataset.edge);
}), { rootMargin: '400px' });
for (const log of $$('[data-log]')) {
  label(log, 'before'); label(log, 'after');
  if (!location.hash && !/[?&](from|line)=/.test(location.search)) log.scrollTop = log.scrollHeight;
  log.addEventListener('scroll', () => {
    if (log.scrollTop < 600) extend(log, 'before');
    if (log.scrollHeight - log.scrollTop - log.clientHeight < 600) extend(log, 'after');
  }, { passive: true });
  $$('[data-edge]', log).forEach(each => seen.observe(each));
}
showLine();
