"use strict";
(() => {
  const fleet = JSON.parse(document.getElementById("fleet").textContent);
  const body = document.querySelector("#apps tbody");
  const rows = [...body.rows];
  const panel = document.getElementById("panel");
  const inputs = Object.fromEntries(
    ["search", "state", "queue", "user", "age"].map((id) => [id, document.getElementById(id)]));

  // Text only: nothing of an app is ever read as markup.
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
    element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
    return element;
  }
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

  const compare = new Intl.Collator("en", { numeric: true }).compare;
  function sort(heading) {
    const place = [...heading.parentNode.children].indexOf(heading);
    const down = heading.getAttribute("aria-sort") === "ascending";
    for (const other of heading.parentNode.children) other.setAttribute("aria-sort", "none");
    heading.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent;
    const sorted = rows.map((row) => [key(row), row]).sort((a, b) => compare(a[0], b[0]));
    body.append(...(down ? sorted.reverse() : sorted).map(([, row]) => row));
  }

  function facts(pairs) {
    const list = make("dl");
    for (const [name, value] of pairs) {
      if (value === null || value === undefined || value === "") continue;
      list.append(make("dt", {}, name), make("dd", {}, value));
    }
    return list;
  }
  function diagnosis(item) {
    const objects = (item.objects || []).map((o) => [o.kind, [o.namespace, o.name].filter(Boolean).join("/")].join(" "));
    return make("div", { class: "diagnosis" },
      make("strong", {}, `${item.reason || "Unknown"}: ${item.summary || ""}`),
      item.detail ? make("p", {}, item.detail) : "",
      item.resolution ? make("p", {}, make("b", {}, "What to do: "), item.resolution) : "",
      objects.length ? make("p", { class: "quiet" }, `read from ${objects.join(", ")}`) : "");
  }
  function cell(label, ...children) { return make("td", { role: "cell", "data-label": label }, ...children); }
  function replicas(role) {
    const columns = ["Replica", "State", "Reason", "Exit", "Restarts", "Node", "Pod"];
    const lines = role.replicas.map((item) => make("tr", { role: "row" },
      cell("Replica", String(item.id ?? "")),
      cell("State", make("span", { class: `state ${item.state}` }, item.state || "UNKNOWN")),
      cell("Reason", [item.reason, item.message].filter(Boolean).join(": ")),
      cell("Exit", item.exit_code === null || item.exit_code === undefined ? "" : String(item.exit_code)),
      cell("Restarts", item.restarts ? String(item.restarts) : ""),
      cell("Node", item.node || ""), cell("Pod", item.pod || "")));
    const heads = columns.map((name) => make("th", { role: "columnheader", scope: "col" }, name));
    return make("table", { role: "table", "aria-label": `Replicas of ${role.name}` },
      make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)),
      make("tbody", { role: "rowgroup" }, ...lines));
  }
  function roleSection(role) {
    const counts = Object.entries(role.counts).map(([state, count]) => `${count} ${state}`).join(", ");
    const asked = role.resource || {};
    const each = [asked.cpu ? `${asked.cpu} CPU` : "", asked.gpu ? `${asked.gpu} GPU` : "",
      asked.memory_mb ? `${asked.memory_mb} MB` : ""].filter(Boolean).join(", ");
    return make("section", {}, make("h3", {}, `Role ${role.name}: ${role.ready}/${role.wanted} ready`),
      facts([["Replicas", counts], ["Least", role.min_replicas && String(role.min_replicas)], ["Image", role.image],
        ["Digest", role.digest], ["Each", each]]),
      role.replicas.length ? replicas(role) : "",
      role.omitted ? make("p", { class: "quiet" }, `${role.omitted} more that have not failed are not listed`) : "");
  }
  function open(app) {
    const total = app.resources_total;
    const close = make("button", { type: "button" }, "Close");
    close.addEventListener("click", () => panel.close());
    const link = app.ui_url ? make("a", { href: app.ui_url, rel: "noreferrer" }, app.ui_url) : "";
    const seen = app.observed_at ? `${app.observed_at} (${app.source}${app.stale ? ", stale" : ""})` : "never";
    const title = make("h2", { id: "panel-title" }, app.app_id);
    const parts = [
      make("div", { class: "top" }, title, close),
      make("p", {}, make("span", { class: `state ${app.state}` }, app.state), ` ${app.reason}`),
      app.message && !app.diagnoses.length ? make("p", {}, app.message) : "",
      app.note ? make("p", { class: "remark" }, app.note) : "",
      ...app.diagnoses.map(diagnosis),
      facts([["Handle", app.handle], ["Scheduler", app.scheduler + (app.phase ? `, says ${app.phase}` : "")],
        ["Queue", app.queue], ["User", app.user], ["Stack", `${app.project}/${app.stack}`],
        ["Asks for", [`${total.cpu ?? 0} CPU`, `${total.gpu ?? 0} GPU`, `${total.memory_mb ?? 0} MB`].join(", ")],
        ["Attempt", String(app.attempt)], ["Queued", app.queued_at], ["Started", app.started_at],
        ["Finished", app.finished_at], ["Last seen", seen], ["Dashboard", link],
        ["Logs", app.log_command ? make("code", {}, app.log_command) : ""]]),
      ...app.roles.map(roleSection),
    ];
    document.getElementById("panel-body").replaceChildren(...parts.filter((part) => part !== ""));
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
})();
