const fleet = JSON.parse(document.getElementById("fleet").textContent);
const body = document.querySelector("#apps tbody");
const rows = [...body.rows];
const panel = document.getElementById("panel");
const inputs = Object.fromEntries(
  ["search", "state", "queue", "user", "age"].map((id) => [id, document.getElementById(id)]));

const words = (app) => [app.app_id, app.handle, app.name, app.user, app.reason, app.message, app.project, app.stack,
  ...app.diagnoses.map((item) => item.summary),
  ...app.roles.flatMap((role) => [role.image, ...role.replicas.flatMap((item) => [item.pod, item.node])]),
].join("\n").toLowerCase();
const haystacks = fleet.apps.map(words);

function filter() {
  const wanted = inputs.search.value.trim().toLowerCase();
  let shown = 0;
  for (const row of rows) {
    const app = fleet.apps[row.dataset.app];
    const keeps = (!wanted || haystacks[row.dataset.app].includes(wanted))
      && (!inputs.state.value || app.state === inputs.state.value)
      && (!inputs.queue.value || app.queue === inputs.queue.value)
      && (!inputs.user.value || app.user === inputs.user.value)
      && (!inputs.age.value || app.age_s === null || app.age_s <= Number(inputs.age.value));
    row.hidden = !keeps;
    shown += keeps ? 1 : 0;
  }
  document.getElementById("count").textContent = `${shown} of ${rows.length}`;
}

function sort(heading) {
  const { place, down } = turnSort(heading);
  const key = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent;
  const sorted = rows.map((row) => [key(row), row]).sort((a, b) => compare(a[0], b[0]));
  body.append(...(down ? sorted.reverse() : sorted).map(([, row]) => row));
}

function open(app) {
  const close = make("button", { type: "button" }, "Close");
  close.addEventListener("click", () => panel.close());
  const title = make("h2", { id: "panel-title" }, app.app_id);
  const top = make("div", { class: "top" }, title, close);
  document.getElementById("panel-body").replaceChildren(top, headline(app), ...overview(app));
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
}
function route() {
  const name = decodeURIComponent(location.hash.slice(1));
  const app = fleet.apps.find((item) => name && `${item.project}/${item.stack}` === name);
  if (app) open(app);
  else if (panel.open) panel.close();
}

panel.addEventListener("close", () => {
  if (location.hash) history.replaceState(null, "", "#");
});
panel.addEventListener("click", (event) => { if (event.target === panel) panel.close(); });
// The same link a second time changes no hash.
body.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link && link.hash === location.hash) route();
});
for (const heading of document.querySelectorAll("#apps th"))
  heading.querySelector("button").addEventListener("click", () => sort(heading));
for (const input of Object.values(inputs)) input.addEventListener("input", filter);
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
window.addEventListener("hashchange", route);

const minutes = Math.floor((Date.now() - Date.parse(fleet.read_at)) / 60000);
if (minutes >= 1) document.getElementById("page-age").textContent = `, ${minutes} min ago when this page was opened`;
filter();
route();
