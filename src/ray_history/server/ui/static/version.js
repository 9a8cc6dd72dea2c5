// The version menu in the bars above the dashboard: opens the same page in another version of the dashboard.
document.getElementById('hb-version').addEventListener('change', event => {
  const url = new URL(location.href);
  url.searchParams.set('dashboard', event.target.value);
  location.assign(url);
});
