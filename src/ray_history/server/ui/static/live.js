// The bar above the dashboard of a running cluster. It says so when the cluster is live no more while somebody looks:
// from then on the dashboard is answered from the archive, or not at all.
(() => {
  const bar = document.querySelector('.hb-live'), word = bar.querySelector('[data-word]');
  const note = document.querySelector('[data-note]'), text = note.querySelector('span');

  const look = async () => {
    let told;
    try {
      const answer = await fetch('_status', { headers: { Accept: 'application/json' } }), body = await answer.json();
      told = answer.ok ? body.note : body.msg;
    } catch { told = 'this server does not answer'; }
    bar.classList.toggle('hb-over', !!told);
    word.textContent = told ? 'Not live' : 'Live';
    note.hidden = !told;
    if (text.textContent !== told) text.textContent = text.title = told;
  };
  setInterval(() => document.hidden || look(), 10_000);
  document.addEventListener('visibilitychange', () => document.hidden || look());
})();
