// The columns, the apps, when they were read; `version` of a page without a controller is null.
const page = JSON.parse(document.getElementById("data").textContent);
const pageTitle = document.title;

// Text only: nothing of an app is ever read as markup.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}
const compare = new Intl.Collator("en", { numeric: true }).compare;

// The column that a heading's button sorts by, and whether downwards.
function turnSort(heading) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentNode.children) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  return { place: [...heading.parentNode.children].indexOf(heading), down };
}

function facts(pairs) {
  const list = make("dl");
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(make("dt", {}, name), make("dd", {}, value));
  }
  return list;
}
function stateOf(state) { return make("span", { class: `state ${state || "UNKNOWN"}` }, state || "UNKNOWN"); }
function diagnosis(item) {
  const objects = (item.objects || []).map((o) => [o.kind, [o.namespace, o.name].filter(Boolean).join("/")].join(" "));
  return make("div", { class: "diagnosis" },
    make("strong", {}, `${item.reason || "Unknown"}: ${item.summary || ""}`),
    item.detail ? make("p", {}, item.detail) : "",
    item.resolution ? make("p", {}, make("b", {}, "What to do: "), item.resolution) : "",
    objects.length ? make("p", { class: "quiet" }, `read from ${objects.join(", ")}`) : "");
}

// A table; a row is a list of texts or elements, one for each column.
function table(label, columns, rows) {
  const heads = columns.map((name) => make("th", { role: "columnheader", scope: "col" }, name));
  const lines = rows.map((row) => make("tr", { role: "row" },
    ...row.map((value, place) => make("td", { role: "cell", "data-label": columns[place] }, value))));
  return make("table", { role: "table", "aria-label": label },
    make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...heads)),
    make("tbody", { role: "rowgroup" }, ...lines));
}
function replicas(role, action) {
  const columns = ["Replica", "State", "Reason", "Exit", "Restarts", "Node", "Pod", ...(action ? ["Log"] : [])];
  return table(`Replicas of ${role.name}`, columns, role.replicas.map((item) => [
    String(item.id ?? ""), stateOf(item.state), [item.reason, item.message].filter(Boolean).join(": "),
    String(item.exit_code ?? ""), item.restarts ? String(item.restarts) : "", item.node || "", item.pod || "",
    ...(action ? [action(role, item)] : [])]));
}
function roleSection(role, action) {
  const counts = Object.entries(role.counts).map(([state, count]) => `${count} ${state}`).join(", ");
  const asked = role.resource || {};
  const each = [asked.cpu ? `${asked.cpu} CPU` : "", asked.gpu ? `${asked.gpu} GPU` : "",
    asked.memory_mb ? `${asked.memory_mb} MB` : ""].filter(Boolean).join(", ");
  return make("section", {}, make("h3", {}, `Role ${role.name}: ${role.ready}/${role.wanted} ready`),
    facts([["Replicas", counts], ["Least", role.min_replicas && String(role.min_replicas)], ["Image", role.image],
      ["Digest", role.digest], ["Each", each]]),
    role.replicas.length ? replicas(role, action) : "",
    role.omitted ? make("p", { class: "quiet" }, `${role.omitted} more that have not failed are not listed`) : "");
}

function headline(app) { return make("p", {}, stateOf(app.state), ` ${app.reason}`); }

// What is known of an app, below its headline. `action` returns the element at the end of a replica's row.
function overview(app, action) {
  const total = app.resources_total;
  const link = app.ui_url ? make("a", { href: app.ui_url, rel: "noreferrer" }, app.ui_url) : "";
  const seen = app.checked_at ? `${app.checked_at} (${app.source}${app.stale ? ", stale" : ""})` : "never";
  return [
    app.message && !app.diagnoses.length ? make("p", {}, app.message) : "",
    app.note ? make("p", { class: "remark" }, app.note) : "",
    ...app.diagnoses.map(diagnosis),
    facts([["Handle", app.handle], ["Scheduler", app.scheduler + (app.phase ? `, says ${app.phase}` : "")],
      ["Queue", app.queue], ["User", app.user], ["Stack", `${app.project}/${app.stack}`],
      ["Asks for", [`${total.cpu ?? 0} CPU`, `${total.gpu ?? 0} GPU`, `${total.memory_mb ?? 0} MB`].join(", ")],
      ["Attempt", String(app.attempt)], ["Queued", app.queued_at], ["Started", app.started_at],
      ["Finished", app.finished_at], ["Changed", app.observed_at], ["Last seen", seen], ["Dashboard", link],
      ["Logs", app.log_command ? make("code", {}, app.log_command) : ""]]),
    ...app.roles.map((role) => roleSection(role, action)),
  ].filter((part) => part !== "");
}
