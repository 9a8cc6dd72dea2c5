// Shows the progress of an opening, and loads the requested page when the session is ready.
{
  const card = document.querySelector('[data-opening]'), session = card.dataset.opening, started = Date.now();
  const part = name => card.querySelector('[data-' + name + ']');
  const full = number => number.toLocaleString('en-US');
  const short = number => {
    if (number >= 1e6) return (number / 1e6).toFixed(1) + ' M';
    return number >= 1e4 ? (number / 1e3).toFixed(1) + ' k' : full(Math.round(number));
  };
  const size = number => {
    for (const unit of ['bytes', 'KB', 'MB', 'GB']) {
      if (number < 1000) return (unit === 'bytes' || number >= 100 ? number.toFixed(0) : number.toFixed(1)) + ' ' + unit;
      number /= 1000;
    }
    return number.toFixed(1) + ' TB';
  };
  const icons = { done: 'check', now: 'spin', todo: 'wait' };
  const showStages = now => {
    const items = [...card.querySelectorAll('[data-stage]')];
    const place = items.findIndex(item => item.dataset.stage === now);
    if (place < 0) return;
    items.forEach((item, number) => {
      const status = number < place ? 'done' : number === place ? 'now' : 'todo';
      item.className = 'stage ' + status;
      item.querySelector('use').setAttribute('href', '#i-' + icons[status]);
      if (status === 'now') {
        item.querySelector('.meta').textContent = Math.round((Date.now() - started) / 1000) + ' s so far';
      }
    });
  };
  let first = null;
  const show = progress => {
    showStages(progress.stage);
    part('files').textContent = full(progress.files);
    part('files-total').textContent = progress.files_total ? 'of ' + full(progress.files_total) : '';
    part('bytes').textContent = size(progress.bytes);
    part('bytes-total').textContent = progress.bytes_total ? 'of ' + size(progress.bytes_total) : '';
    part('events').textContent = short(progress.events);
    const share = progress.ready ? 1
      : progress.stage === 'making tables' ? .92
      : progress.bytes_total ? .9 * progress.bytes / progress.bytes_total : 0;
    part('percent').textContent = Math.round(share * 100) + '%';
    part('bar').value = Math.round(share * 100);
    if (progress.stage !== 'reading events') { part('left').textContent = ''; return; }
    first ??= { at: Date.now(), bytes: progress.bytes, events: progress.events };
    const seconds = (Date.now() - first.at) / 1000, speed = (progress.bytes - first.bytes) / seconds;
    if (seconds > 1 && speed > 0) {
      part('speed').textContent = size(speed) + '/s';
      part('rate').textContent = short((progress.events - first.events) / seconds) + ' events/s';
      part('left').textContent = 'about ' + Math.ceil((progress.bytes_total - progress.bytes) / speed / .9) + ' s left';
    }
  };
  const failed = reason => {
    part('why').textContent = reason;
    part('failure').hidden = false;
  };
  const follow = () => {
    const events = new EventSource(session + '_status');
    events.onmessage = event => {
      const progress = JSON.parse(event.data);
      show(progress);
      if (!progress.ready && progress.stage !== 'failed') return;
      events.close();
      progress.ready ? location.reload() : failed(progress.reason);
    };
  };
  follow();
}
