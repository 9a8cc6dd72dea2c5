// The session page. It works without this script.
{
  // Timeline: a hairline through all tracks; a click opens the dashboard at that moment.
  const time = ms => new Date(ms).toISOString();
  document.querySelectorAll('[data-tracks]').forEach(tracks => {
    const [from, to, dashboard] = tracks.dataset.tracks.split(',');
    const plot = tracks.querySelector('.plot'), hair = document.createElement('div');
    hair.className = 'hair';
    hair.hidden = true;
    tracks.append(hair);
    const share = event => { const box = plot.getBoundingClientRect(); return (event.clientX - box.left) / box.width; };
    const moment = event => time(+from + share(event) * (to - from));
    const inside = event => share(event) >= 0 && share(event) <= 1;
    tracks.addEventListener('pointermove', event => {
      hair.hidden = !inside(event);
      if (hair.hidden) return;
      hair.style.left = event.clientX - tracks.getBoundingClientRect().left + 'px';
      hair.textContent = moment(event).slice(11, 19);
    });
    tracks.addEventListener('pointerleave', () => { hair.hidden = true; });
    tracks.addEventListener('click', event => {
      if (!inside(event) || getSelection().toString()) return;
      event.preventDefault();
      location.href = dashboard + '?at=' + moment(event);
    });
  });
}
