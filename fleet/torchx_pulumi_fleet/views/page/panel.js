// One app: its details, log, events and runs, each at its own address, #ID and #ID/log.
const EVENTS_MS = 10000;
const panel = document.getElementById("panel");
const tabs = [...panel.querySelectorAll("[role=tab]")];
const shown = { id: "", tab: "overview", run: null, abort: null, timer: 0, wanted: null };
panel.querySelector(".tabs").hidden = !page.version;
const view = (name) => document.getElementById(`view-${name}`);

function remark(text) {
  const element = document.getElementById("panel-remark");
  element.hidden = !text;
  element.textContent = text;
}
function route() {
  let [id, tab] = location.hash.slice(1).split("/");
  try {
    id = decodeURIComponent(id);
  } catch { /* No app has such an id, which is said. */ }
  if (!id) return panel.open ? panel.close() : undefined;
  if (shown.id !== id) reset(id);
  selectTab(page.version && tabs.some((item) => item.id === `tab-${tab}`) ? tab : "overview");
  if (!panel.open) {
    panel.showModal();
    panel.scrollTop = 0;
  }
  return load();
}
function reset(id) {
  closeLog();
  Object.assign(shown, { id, run: null, wanted: null });
  const record = records.get(id);
  showTitle(record && record.app);
  document.getElementById("panel-state").replaceChildren(...(record ? [make("p", {}, stateOf(record.app.state))] : []));
  for (const name of ["overview", "events", "runs"]) view(name).replaceChildren();
  remark("");
}
function showTitle(app) {
  document.getElementById("panel-title").replaceChildren(...(app ? [make("span", {}, ...jobName(app), ...place(app))] : []));
  document.title = app ? visible(`${app.state} ${app.app_id} - TorchX apps`) : listTitle;
  showIcon(app && app.state);
}
function selectTab(name) {
  shown.tab = panel.dataset.tab = name;
  for (const item of tabs) {
    const selected = item.id === `tab-${name}`;
    item.setAttribute("aria-selected", String(selected));
    item.tabIndex = selected ? 0 : -1;
    document.getElementById(item.getAttribute("aria-controls")).hidden = !selected;
  }
  if (name !== "log") stopLog();
}

// Fetch what the open tab shows. Called again whenever the app changes.
async function load() {
  clearTimeout(shown.timer);
  if (shown.abort) shown.abort.abort();
  const { id, tab } = shown;
  const abort = shown.abort = new AbortController();
  const path = `apps/${encodeURIComponent(id)}`;
  const also = { log: "runs", runs: "runs", events: "events" }[tab];
  let detail, more;
  try {
    [detail, more] = await Promise.all(
      [detailOf(id, abort.signal), also ? json(`${path}/${also}`, abort.signal) : null]);
  } catch (error) {
    if (shown.abort !== abort || error.status === 401) return;
    remark(error.status === 404 ? "There is no app of this address any more." : error.status ? error.message
      : "The controller does not answer; what is shown may be old.");
    if (error.status !== 404) shown.timer = setTimeout(load, waitFor(3, error));
    return;
  }
  if (shown.abort !== abort) return;
  showTitle(detail);
  morphChildren(document.getElementById("panel-state"), [headline(detail)]);
  remark("");
  if (tab === "overview") await showOverview(detail, path, abort);
  if (tab === "log" && logBox) openLog(detail, more.runs, takeWanted());
  if (tab === "runs") morphChildren(view(tab), runsOf(more));
  if (tab === "events") {
    morphChildren(view(tab), eventsOf(more.events));
    shown.timer = setTimeout(() => document.hidden || load(), EVENTS_MS);
  }
}
// The attempts come later: they may be read from an archive.
async function showOverview(detail, path, abort) {
  const action = page.version && logBox && logButton;
  const show = () => morphChildren(view("overview"), overview(detail, { action, run: shown.run }));
  show();
  if (!page.version) return;
  try {
    const { runs } = await json(`${path}/runs`, abort.signal);
    if (shown.abort !== abort) return;
    shown.run = runs.find((run) => run.current);
    show();
  } catch { /* The picture shows what is known without them. */ }
}
function takeWanted() {
  const wanted = shown.wanted;
  shown.wanted = null;
  return wanted;
}
function logButton(role, item, run) {
  const name = `${role.name}/${item.id}`;
  const label = `Log of ${name}${run ? `, ${runLabel(...run)}` : ""}`;
  return make("button", { type: "button", class: "small", "aria-label": label, "data-replica": name,
    ...(run ? { "data-run": runChoice(...run) } : {}) }, "Log");
}
function eventsOf(events) {
  if (!events.length)
    return [make("p", { class: "quiet" },
      "The cluster has no events of this app; most clusters keep them for an hour.")];
  return [table("Events", ["Seen", "Type", "Reason", "Object", "Message", "Count"], events.map((item) => [
    when(item.time), make("span", { class: item.type === "Warning" ? "state PENDING" : "" }, item.type || ""),
    item.reason || "", item.object || "", item.message || "", item.count > 1 ? String(item.count) : ""]))];
}
const lasted = (item) => item.started_at && item.finished_at
  ? between(Date.parse(item.started_at), Date.parse(item.finished_at)) : "";
function runsOf({ runs, updates, notes }) {
  const parts = notes.map((text) => make("p", { class: "remark" }, text));
  for (const run of runs) {
    const columns = ["Attempt", "Replica", "Container", "Result", "Started", "Took", "Archive", "Log"];
    const lines = run.attempts.map((item) => [
      String(item.attempt), `${item.role}/${item.replica}`, item.container || "", resultOf(item), when(item.started_at),
      lasted(item), item.archived ? (item.complete === false ? "incomplete" : "yes") : "",
      logBox && hasLog(run, item) ? logButton({ name: item.role }, { id: item.replica }, [run, item]) : ""]);
    parts.push(make("section", {},
      make("h3", {}, run.current ? "Current run " : "Earlier run ", run.state ? stateOf(run.state) : ""),
      facts([["Reason", run.reason], ["Started", when(run.started_at)], ["Finished", when(run.finished_at)],
        ["Job object", run.uid]]),
      lines.length ? table("Containers of the run", columns, lines) : "",
      run.omitted ? make("p", { class: "quiet" }, `${run.omitted} more are not listed`) : ""));
  }
  if (!runs.length) parts.push(make("p", { class: "quiet" }, "No run is known."));
  if (updates.length) parts.push(make("section", {}, make("h3", {}, "Updates of the stack"),
    table("Updates of the stack", ["Update", "Result", "Started", "Took", "Message"], updates.map((item) =>
      [item.kind, item.result, when(item.started_at), lasted(item), item.message || ""]))));
  return parts;
}

function panelFrame(frame) {
  if (!panel.open) return;
  if (frame.gone.includes(shown.id)) {
    remark("The stack of this app is gone. What is shown is from before.");
  } else if (frame.apps.some((app) => app.id === shown.id)) {
    clearTimeout(shown.timer);
    shown.timer = setTimeout(load, 200);
  }
}
function go(tab) {
  const place = `#${encodeURIComponent(shown.id)}`;
  history.replaceState(null, "", tab === "overview" ? place : `${place}/${tab}`);
  selectTab(tab);
  load();
}

panel.addEventListener("close", () => {
  clearTimeout(shown.timer);
  if (shown.abort) shown.abort.abort();
  shown.id = "";
  showTitle();
  closeLog();
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
});
panel.addEventListener("click", (event) => {
  if (event.target === panel) panel.close();
  const button = event.target.closest("[data-replica]");
  if (button) {
    shown.wanted = { replica: button.dataset.replica, run: button.dataset.run || "" };
    go("log");
  }
});
document.getElementById("panel-close").addEventListener("click", () => panel.close());
for (const [place, tab] of tabs.entries()) {
  tab.addEventListener("click", () => go(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = tabs[(step + tabs.length) % tabs.length];
    next.focus();
    next.click();
  });
}
