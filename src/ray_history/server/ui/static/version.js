// The menu of the dashboard's versions, in the bar above it: the same place, shown by the pages of another Ray.
document.getElementById('hb-version').addEventListener('change', event => {
  const url = new URL(location.href);
  url.searchParams.set('dashboard', event.target.value);
  location.assign(url);
});
