// The bar above the dashboard of a running cluster. It checks every 10 s whether the cluster is still live: after its
// end the dashboard gets its answers from the archive, or none.
(() => {
  const bar = document.querySelector('.hb-live'), word = bar.querySelector('[data-word]');
  const note = document.querySelector('[data-note]'), text = note.querySelector('span');

  const check = async () => {
    let message;
    try {
      const answer = await fetch('_status', { headers: { Accept: 'application/json' } }), body = await answer.json();
      message = answer.ok ? body.note : body.msg;
    } catch {
      message = 'This server is not responding.';
    }
    bar.classList.toggle('hb-over', !!message);
    word.textContent = message ? 'Not live' : 'Live';
    note.hidden = !message;
    if (text.textContent !== message) text.textContent = text.title = message;
  };
  setInterval(() => document.hidden || check(), 10_000);
  document.addEventListener('visibilitychange', () => document.hidden || check());
})();
