// Follows an opening and goes on to the session when it is ready.
{
  const card = document.querySelector('[data-opening]'), session = card.dataset.opening, begun = Date.now();
  const part = name => card.querySelector('[data-' + name + ']');
  const whole = number => number.toLocaleString('en-US');
  const short = number => number >= 1e6 ? (number / 1e6).toFixed(1) + ' M' : number >= 1e4 ? (number / 1e3).toFixed(1) + ' k' : whole(Math.round(number));
  const size = number => {
    for (const unit of ['bytes', 'KB', 'MB', 'GB']) {
      if (number < 1000) return (unit === 'bytes' || number >= 100 ? number.toFixed(0) : number.toFixed(1)) + ' ' + unit;
      number /= 1000;
    }
    return number.toFixed(1) + ' TB';
  };
  const looks = { done: 'check', now: 'spin', todo: 'wait' };
  const steps = now => {
    const items = [...card.querySelectorAll('[data-stage]')];
    const place = items.findIndex(item => item.dataset.stage === now);
    if (place < 0) return;
    items.forEach((item, number) => {
      const how = number < place ? 'done' : number === place ? 'now' : 'todo';
      item.className = 'stage ' + how;
      item.querySelector('use').setAttribute('href', '#i-' + looks[how]);
      if (how === 'now') item.querySelector('.meta').textContent = Math.round((Date.now() - begun) / 1000) + ' s so far';
    });
  };
  let first = null;
  const show = told => {
    steps(told.stage);
    part('files').textContent = whole(told.files);
    part('files-total').textContent = told.files_total ? 'of ' + whole(told.files_total) : '';
    part('bytes').textContent = size(told.bytes);
    part('bytes-total').textContent = told.bytes_total ? 'of ' + size(told.bytes_total) : '';
    part('events').textContent = short(told.events);
    const share = told.ready ? 1 : told.stage === 'making tables' ? .92 : told.bytes_total ? .9 * told.bytes / told.bytes_total : 0;
    part('percent').textContent = Math.round(share * 100) + '%';
    part('bar').value = Math.round(share * 100);
    if (told.stage !== 'reading events') { part('left').textContent = ''; return; }
    first ??= { at: Date.now(), bytes: told.bytes, events: told.events };
    const seconds = (Date.now() - first.at) / 1000, speed = (told.bytes - first.bytes) / seconds;
    if (seconds > 1 && speed > 0) {
      part('speed').textContent = size(speed) + '/s';
      part('rate').textContent = short((told.events - first.events) / seconds) + ' events/s';
      part('left').textContent = 'about ' + Math.ceil((told.bytes_total - told.bytes) / speed / .9) + ' s left';
    }
  };
  const failed = reason => {
    part('why').textContent = reason;
    part('failure').hidden = false;
  };
  const follow = () => {
    const status = new EventSource(session + '_status');
    status.onmessage = event => {
      const told = JSON.parse(event.data);
      show(told);
      if (!told.ready && told.stage !== 'failed') return;
      status.close();
      told.ready ? location.reload() : failed(told.reason);
    };
  };
  follow();
}
