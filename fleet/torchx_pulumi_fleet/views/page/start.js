// Connects the parts of the page.
const HIDDEN_MS = 60000;
let hiding;

function showLine({ kind, since, why }) {
  const lost = kind === "lost" ? `Connection lost at ${clock(since)}${why ? ` (${why})` : ""}; trying again.` : "";
  for (const bar of document.querySelectorAll(".bar")) {
    bar.hidden = kind !== "lost" && kind !== "logged-out";
    bar.replaceChildren(...(kind === "logged-out"
      ? ["You are logged out. ", make("a", { href: "./" }, "Log in again")] : [lost]));
  }
  const element = document.getElementById("connection");
  element.className = `connection ${kind}`;
  document.body.classList.toggle("is-live", kind === "live");
  element.textContent = { live: "live", lost: "not connected", "logged-out": "logged out" }[kind];
}
function saveFilters() {
  if (!page.version) return;
  const set = Object.entries(inputs).map(([name, input]) => [name, input.value]).filter(([, value]) => value);
  if (shownState) set.push(["state", shownState]);
  const query = set.length ? `?${new URLSearchParams(set)}` : "";
  history.replaceState(null, "", `${location.pathname}${query}${location.hash}`);
}
function restoreFilters() {
  const unknown = [], used = new Set();
  for (const [name, value] of new URLSearchParams(location.search)) {
    const input = Object.hasOwn(inputs, name) ? inputs[name] : null, state = value.toUpperCase();
    if (used.has(name)) {
      unknown.push(`${name}=${value}`);
      continue;
    }
    used.add(name);
    if (input) input.value = value;
    // There may be apps of a queue or a user again.
    if (CHOICES.some(({ key }) => key === name) && input.value !== value) {
      input.append(make("option", { value }, value));
      input.value = value;
    }
    if (name === "state" && state === "ACTIVE") shownState = "active";
    if (name === "state" && STATES.includes(state)) shownState = state;
    if (input ? input.value !== value : name !== "state" || !shownState) unknown.push(`${name}=${value}`);
  }
  const ages = [...inputs.age.options].map(({ value }) => value).filter(Boolean).join(", ");
  const said = document.getElementById("unknown");
  said.hidden = !unknown.length;
  said.textContent = `Not a filter: ${unknown.join(", ")}. All apps are shown that the other filters allow. Filters are
    ${Object.keys(inputs).join(", ")} (${ages}) and state (active, ${STATES.join(", ")}).`;
}
function filterAgain() {
  document.getElementById("unknown").hidden = true;
  saveFilters();
  showStates();
  filter();
  tick();
}

document.getElementById("where").textContent = `Read from ${page.backends.join(", ")}`;
const seconds = (Date.now() - Date.parse(page.read_at)) / 1000;
document.getElementById("connection").append("read ",
  make("time", { datetime: page.read_at, title: page.read_at }, localTime(page.read_at)),
  !page.version && seconds >= 60 ? `, ${age(seconds)} ago when this page was opened` : "");
takeFrame({ ...page, whole: true, gone: [] });
restoreFilters();
showChoices();
watchers.frame.push(takeFrame, panelFrame);
watchers.line.push(showLine);
for (const heading of headings) heading.querySelector("button").addEventListener("click", () => {
  Object.assign(order, turnSort(heading));
  arrange(new Set([...body.rows]));
  filter();
});
for (const input of Object.values(inputs)) input.addEventListener("input", filterAgain);
document.getElementById("states").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  shownState = button.dataset.state;
  filterAgain();
});
document.getElementById("more").addEventListener("click", () => {
  const before = [...body.rows].filter((row) => !row.hidden);
  allEnded = true;
  filter();
  // The button is gone, which had the focus.
  const next = [...body.rows].find((row) => !row.hidden && !before.includes(row));
  if (next) next.querySelector("a").focus();
});
document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
// The same link a second time changes no hash.
body.addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (link && link.hash === location.hash) route();
});
window.addEventListener("hashchange", route);

showStates();
filter();
if (page.version) {
  // Browsers open six connections to a host, for all tabs: one that is not looked at gives its own back.
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hiding);
    if (document.hidden) {
      disconnect();
      hiding = setTimeout(stopLog, HIDDEN_MS);
    } else {
      tick();
      connect();
      if (panel.open) load();
    }
  });
  // A request that ends because the page is left is no loss.
  window.addEventListener("pagehide", disconnect);
  window.addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  setInterval(() => document.hidden || tick(), 5000);
  connect();
}
route();
