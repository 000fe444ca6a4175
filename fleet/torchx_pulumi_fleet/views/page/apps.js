// The table of apps. The page's data has its columns and the first apps; later ones come from the stream.
const body = document.getElementById("rows");
const ENDED = new Set(["SUCCEEDED", "FAILED", "CANCELLED"]);
const STATES = ["RUNNING", "PENDING", "SUBMITTED", "FAILED", "UNKNOWN", "SUCCEEDED", "CANCELLED", "UNSUBMITTED"];
const CHOICES = page.choices;
const TIMES = page.columns.filter(({ cell }) => cell === "age" || cell === "ago");
const records = new Map(); // Id of an app to its row, and the words that a search finds it by.
const order = { place: -1, down: false };
const MOST_ENDED = 50; // apps that have ended and are shown; the others are behind a button
let shownState = "", allEnded = false;
let skew = Date.parse(page.read_at) - Date.now();

// Now by the controller's clock. A page without a controller shows ages as they were when it was written.
const now = () => page.version ? Date.now() + skew : Date.parse(page.read_at);
const secondsSince = (time) => Math.max((now() - time) / 1000, 0);
function age(seconds) {
  if (Number.isNaN(seconds)) return "-";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  for (const [place, [unit, size]] of units.entries()) {
    const count = Math.floor(seconds / size);
    if (count === 0 && unit !== "s") continue;
    if (count >= 10 || unit === "s") return `${count}${unit}`;
    const [smaller, part] = units[place + 1];
    const rest = Math.floor((Math.floor(seconds) % size) / part);
    return rest ? `${count}${unit}${rest}${smaller}` : `${count}${unit}`;
  }
}
function why(app) {
  const reason = app.reason.toUpperCase() === app.state ? "" : app.reason;
  if (!app.cause || app.cause.startsWith(reason)) return app.cause || reason;
  return reason ? `${reason}: ${app.cause}` : app.cause;
}

// The parts of a job's name: as the user wrote it, and what made it unique; and its namespace.
function jobName(app) {
  const job = app.app_id.slice(app.app_id.indexOf(":") + 1);
  const own = job.startsWith(app.name) ? app.name : job;
  return own === job ? [own] : [own, make("span", { class: "quiet" }, job.slice(own.length))];
}
const place = (app) => app.namespace ? [" ", make("span", { class: "quiet" }, app.namespace)] : [];

// What each kind of cell shows of an app and the value of its column.
const CELLS = {
  link: (app) =>
    make("span", {}, make("a", { href: `#${encodeURIComponent(app.id)}` }, ...jobName(app)), ...place(app)),
  state: (app, value) => make("span", {}, stateOf(value), ENDED.has(value) && lasted(app)
    ? make("span", { class: "quiet" }, ` after ${lasted(app)}`) : ""),
  why: (app) => app.advice ? make("span", {}, why(app), make("span", { class: "todo" }, ...todo(app.advice))) : why(app),
  ready: (app) => `${app.ready}/${app.wanted}`,
  age: (app, value) => age(secondsSince(Date.parse(value))),
  ago: (app, value) => value ? make("span", {}, when(value), app.stale ? ", stale" : "") : "never seen",
  number: (app, value) => value ? String(value) : "",
  launcher: (app) => app.launcher,
  text: (app, value) => value,
};
function makeRow(app) {
  const cells = page.columns.map(({ key, title, cell }) => {
    const stale = cell === "ago" && app.stale ? " stale" : "";
    return make("td", { role: "cell", "data-label": title, class: `cell-${cell}${stale}` }, CELLS[cell](app, app[key]));
  });
  return make("tr", { role: "row", "data-id": app.id, class: ENDED.has(app.state) ? "ended" : "" }, ...cells);
}
function wordsOf(app) {
  const parts = (app.roles || []).flatMap((role) =>
    [role.image, ...role.replicas.flatMap((item) => [item.pod, item.node])]);
  const words = [...page.searched.map((key) => app[key]), `${app.project}/${app.stack}`, app.handle, app.message];
  return [...words, ...parts].join("\n").toLowerCase();
}

// Make an element equal to another one and keep it: its focus, selection and scroll position stay.
function morph(old, fresh) {
  if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return undefined;
  }
  for (const { name } of [...old.attributes])
    if (!fresh.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const { name, value } of fresh.attributes)
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  return morphChildren(old, [...fresh.childNodes]);
}
function morphChildren(old, fresh) {
  const present = [...old.childNodes];
  fresh.forEach((child, place) => place < present.length ? morph(present[place], child) : old.append(child));
  for (const child of present.slice(fresh.length)) child.remove();
}

function compareRecords(one, other) {
  const newest = (key) => {
    const [a, b] = [Date.parse(one.app[key]), Date.parse(other.app[key])];
    return (Number.isNaN(a) ? 1 : 0) - (Number.isNaN(b) ? 1 : 0) || (b - a) || 0;
  };
  const column = page.columns[order.place];
  let found;
  if (!column) found = ENDED.has(one.app.state) - ENDED.has(other.app.state) || newest("launched_at");
  else if (TIMES.includes(column)) found = newest(column.key);
  else found = compare(one.text, other.text);
  const [name, otherName] = [one.app.app_id, other.app.app_id];
  return (order.down ? -found : found) || (name < otherName ? -1 : name > otherName ? 1 : 0);
}

// Put rows where they belong. Only those of `moved` leave their place: moving a row costs it its focus.
function arrange(moved) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  for (const record of records.values()) record.text = order.place < 0 ? "" : record.row.cells[order.place].textContent;
  const rows = [...records.values()].sort(compareRecords).map((record) => record.row);
  let next = body.firstElementChild;
  for (const row of rows) {
    while (next && next !== row && moved.has(next)) next = next.nextElementSibling;
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
  if (focused && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

function keeps({ app, words }) {
  const wanted = inputs.search.value.trim().toLowerCase();
  return (!wanted || words.includes(wanted))
    && (!shownState || (shownState === "active" ? !ENDED.has(app.state) : app.state === shownState))
    && CHOICES.every(({ key }) => !inputs[key].value || app[key] === inputs[key].value)
    && (!inputs.age.value || !app.launched_at
      || secondsSince(Date.parse(app.launched_at)) <= Number(inputs.age.value));
}
function filter() {
  let shown = 0, ended = 0, more = 0;
  for (const row of body.rows) {
    const record = records.get(row.dataset.id);
    const kept = keeps(record);
    const isEnded = kept && ENDED.has(record.app.state);
    const isMore = isEnded && !allEnded && ended >= MOST_ENDED;
    if (row.hidden !== (!kept || isMore)) row.hidden = !kept || isMore;
    shown += kept && !isMore;
    ended += isEnded;
    more += isMore;
  }
  document.getElementById("more").hidden = !more;
  document.getElementById("more").textContent = `Show ${more} more that have ended`;
  const count = document.getElementById("count");
  if (count.textContent !== `${shown} of ${records.size}`) count.textContent = `${shown} of ${records.size}`;
  const empty = document.getElementById("empty");
  empty.hidden = shown > 0;
  empty.textContent = records.size ? "No app matches." : page.empty;
}
function tick() {
  for (const { app, row } of records.values()) {
    if (row.hidden) continue;
    for (const column of TIMES.filter(({ cell }) => cell === "age")) {
      const cell = row.cells[page.columns.indexOf(column)], text = CELLS[column.cell](app, app[column.key]);
      if (cell.textContent !== text) cell.textContent = text;
    }
  }
}

function showStates() {
  const counts = {};
  for (const { app } of records.values()) counts[app.state] = (counts[app.state] || 0) + 1;
  const active = [...records.values()].filter(({ app }) => !ENDED.has(app.state)).length;
  const unfinished = STATES.filter((state) => counts[state] && !ENDED.has(state));
  const texts = unfinished.map((state) => `${counts[state]} ${state}`).join(", ");
  listTitle = texts ? `${texts} - ${pageTitle}` : pageTitle;
  if (!panel.open) showTitle();
  const buttons = [["", "All", records.size], ["active", "Active", active],
    ...STATES.filter((state) => counts[state] || state === shownState)
      .map((state) => [state, state, counts[state] || 0])];
  morphChildren(document.getElementById("states"), buttons.map(([value, label, count]) => make("button",
    { type: "button", "data-state": value, "aria-pressed": String(value === shownState) },
    make("span", { class: `state ${value}` }, label), ` ${count}`)));
}
// A filter is shown if it makes a difference, or is set.
function showChoices() {
  const apps = [...records.values()].map(({ app }) => app);
  for (const { key, cell } of CHOICES) {
    const known = new Map(apps.map((app) => [app[key] || "", cell ? CELLS[cell](app, app[key]) : app[key]]));
    const offered = new Set([...inputs[key].options].map((option) => option.value));
    for (const [value, label] of [...known].sort())
      if (!offered.has(value)) inputs[key].append(make("option", { value }, label));
    inputs[key].parentNode.hidden = known.size < 2 && !inputs[key].value;
  }
}
// A column in which no app has anything is not shown.
function foldColumns() {
  const rows = [...records.values()].map(({ row }) => row);
  for (const [place, heading] of headings.entries()) {
    const empty = rows.length > 0 && rows.every((row) => !row.cells[place].textContent);
    for (const cell of [heading, ...rows.map((row) => row.cells[place])])
      if (cell.hidden !== empty) cell.hidden = empty;
  }
}
function showProblems(problems) {
  const shown = problems.map((text) => make("p", { class: "remark" }, text));
  const more = shown.splice(3);
  if (more.length) shown.push(make("details", {}, make("summary", {}, `${more.length} more`), ...more));
  morphChildren(document.getElementById("problems"), shown);
}

function takeFrame(frame) {
  skew = Date.parse(frame.read_at) - Date.now();
  const moved = new Set();
  const present = new Set(frame.apps.map((app) => app.id));
  const gone = frame.whole ? [...records.keys()].filter((id) => !present.has(id)) : frame.gone;
  for (const id of gone) {
    if (records.has(id)) records.get(id).row.remove();
    records.delete(id);
  }
  for (const app of frame.apps) {
    const before = records.get(app.id);
    const fresh = makeRow(app);
    if (before) {
      fresh.hidden = before.row.hidden;
      morph(before.row, fresh);
    }
    const row = before ? before.row : fresh;
    records.set(app.id, { app, row, words: wordsOf(app) });
    moved.add(row);
    if (!frame.whole && (!before || before.app.state !== app.state)) flash(row);
  }
  foldColumns();
  if (moved.size) arrange(moved);
  showProblems(frame.problems);
  showStates();
  showChoices();
  filter();
  showQueues();
}
function flash(row) {
  row.classList.remove("changed");
  requestAnimationFrame(() => row.classList.add("changed"));
}

const headings = page.columns.map(({ title }) => make("th", { role: "columnheader", scope: "col", "aria-sort": "none" },
  make("button", { type: "button" }, title)));
document.getElementById("headings").append(...headings);
document.getElementById("age").parentNode.before(...CHOICES.map(({ key, title }) =>
  make("label", {}, `${title} `, make("select", { id: key }, make("option", { value: "" }, "all")))));
const inputs = Object.fromEntries(
  ["search", ...CHOICES.map(({ key }) => key), "age"].map((id) => [id, document.getElementById(id)]));
