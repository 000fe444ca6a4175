// What is known of an app, as elements of its panel.
function facts(pairs) {
  const list = make("dl");
  for (const [name, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(make("dt", {}, name), make("dd", {}, value));
  }
  return list;
}
function diagnosis(item) {
  const objects = [item.objects].flat().filter(Boolean)
    .map((o) => [o.kind, [o.namespace, o.name].filter(Boolean).join("/")].join(" "));
  return make("div", { class: "diagnosis" },
    make("strong", {}, `${item.reason || "Unknown"}: ${item.summary || ""}`),
    item.detail ? make("p", {}, item.detail) : "",
    item.resolution ? make("p", {}, ...todo(item.resolution)) : "",
    objects.length ? make("p", { class: "quiet" }, `read from ${objects.join(", ")}`) : "");
}

// A table; a row is a list of texts or elements, one for each column. Columns without any content are left out.
function table(label, columns, rows) {
  const kept = columns.map((_, place) => place).filter((place) => rows.some((row) => row[place]));
  const heads = kept.map((place) => make("th", { role: "columnheader", scope: "col" }, columns[place]));
  const lines = rows.map((row) => make("tr", { role: "row" },
    ...kept.map((place) => make("td", { role: "cell", "data-label": columns[place] }, row[place]))));
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
const amounts = (resource) => [resource.gpu ? `${resource.gpu} GPU` : "", resource.cpu ? `${resource.cpu} CPU` : "",
  resource.memory_mb ? `${resource.memory_mb} MB` : ""].filter(Boolean).join(", ");
function roleSection(role, action, width) {
  return make("section", {},
    make("h3", {}, role.name, make("span", { class: "quiet" }, ` ${role.ready}/${role.wanted} ready`)),
    stateGrid(role, width),
    role.replicas.length ? replicas(role, action) : "",
    role.omitted ? make("p", { class: "quiet" }, `${role.omitted} more that have not failed are not listed`) : "",
    facts([["Least", role.min_replicas && String(role.min_replicas)],
      ["Each", amounts(role.resource || {})], ["Image", role.image], ["Digest", role.digest]]));
}

// A command, and the button that copies it. Where the page may not write to the clipboard, it is selected and copied.
function command(label, text) {
  if (!text) return "";
  return make("div", { class: "command" }, make("code", {}, text), make("button",
    { type: "button", class: "small", "data-copy": "", "aria-label": `Copy: ${label}` }, "Copy"));
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  getSelection().selectAllChildren(button.previousElementSibling);
  button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});

function headline(app) {
  return make("p", {}, stateOf(app.state), app.reason.toUpperCase() === app.state ? "" : ` ${app.reason}`);
}

// What is known of an app, below its headline. `action` returns the element at the end of a replica's row.
function overview(app, { action, run } = {}) {
  const width = Math.min(innerWidth - 16, 1024) - 48;
  const link = app.ui_url ? make("a", { href: app.ui_url, rel: "noreferrer" }, app.ui_url) : "";
  // A time is of use only while nothing arrives.
  const isLive = page.version && app.source === "live";
  const source = isLive ? "" : ` (${app.source}${app.stale ? ", stale" : ""})`;
  const seen = app.checked_at ? make("span", { class: "seen" }, when(app.checked_at), source) : "never";
  const live = isLive ? make("span", { class: "seen-now" }, "live") : "";
  return [
    app.message && !app.diagnoses.length ? make("p", {}, app.message) : "",
    app.note ? make("p", { class: "remark" }, app.note) : "",
    ...app.diagnoses.map(diagnosis),
    timeline(app, run),
    ...app.roles.map((role) => roleSection(role, action, width)),
    make("h3", {}, "App"),
    facts([["Scheduler", app.scheduler + (app.phase ? `, says ${app.phase}` : "")],
      ["Queue", app.queue], ["Cluster", app.cluster], ["Launched by", app.launcher],
      ["Stack", `${app.project}/${app.stack}`],
      ["Asks for", amounts(app.resources_total)], ["Attempt", String(app.attempt)],
      ["Changed", when(app.observed_at)], ["Last seen", make("span", {}, live, seen)], ["Dashboard", link],
      ["Handle", command("handle", app.handle)],
      ["Status", command("status", app.handle && `torchx status ${app.handle}`)],
      ["Log", command("log", app.handle && `torchx-pulumi log ${app.handle}`)],
      ["Log (kubectl)", command("log by kubectl", app.log_command)]]),
  ].filter((part) => part !== "");
}
