// The table of apps. The server writes its rows; later ones come from the stream, through the same columns.
const body = document.querySelector("#apps tbody");
const headings = [...document.querySelectorAll("#apps th")];
const AGE = 4, CHANGED = 5;
const records = new Map();
const inputs = Object.fromEntries(["search", "queue", "user", "age"].map((id) => [id, document.getElementById(id)]));
const order = { place: -1, down: false };
const noApps = document.getElementById("empty").textContent;
let shownState = "";
let skew = Date.parse(page.readAt) - Date.now();

const secondsSince = (time) => Math.max((Date.now() + skew - time) / 1000, 0);
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
const ageText = (launched) => age(secondsSince(launched));
const changedText = (changed, stale) =>
  Number.isNaN(changed) ? "never seen" : `${age(secondsSince(changed))} ago${stale ? ", stale" : ""}`;
function why(app) {
  const reason = app.reason.toUpperCase() === app.state ? "" : app.reason;
  if (!app.cause || app.cause.startsWith(reason)) return app.cause || reason;
  return reason ? `${reason}: ${app.cause}` : app.cause;
}
function makeRow(app) {
  const stale = app.stale ? " stale" : "";
  const cells = [
    [make("a", { href: `#${app.id}` }, app.app_id)],
    [stateOf(app.state)],
    [why(app)],
    [`${app.ready}/${app.wanted}`, { class: "nowrap" }],
    [ageText(Date.parse(app.launched_at)), { "data-sort": app.launched_at || "", class: "nowrap" }],
    [changedText(Date.parse(app.observed_at), app.stale),
      { "data-sort": app.observed_at || "", class: `nowrap${stale}` }],
    [app.gpus ? String(app.gpus) : ""],
    [app.queue],
    [app.user],
  ].map(([value, more], place) =>
    make("td", { role: "cell", "data-label": headings[place].textContent, ...more }, value));
  const found = `${app.name} ${app.project}/${app.stack} ${app.scheduler}`;
  return make("tr", { role: "row", "data-id": app.id, "data-find": found }, ...cells);
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

function read(row) {
  const text = (place) => row.cells[place].textContent;
  const time = (place) => Date.parse(row.cells[place].dataset.sort);
  return {
    row, app: text(0), state: text(1), launched: time(AGE), changed: time(CHANGED), queue: text(7), user: text(8),
    stale: row.cells[CHANGED].classList.contains("stale"),
    words: [text(0), text(2), text(7), text(8), row.dataset.find].join("\n").toLowerCase(),
  };
}
function compareRecords(one, other) {
  const newest = (a, b) => (Number.isNaN(a) ? 1 : 0) - (Number.isNaN(b) ? 1 : 0) || (b - a) || 0;
  let found;
  if (order.place < 0) {
    found = ENDED.has(one.state) - ENDED.has(other.state) || newest(one.launched, other.launched);
  } else if (order.place === AGE) found = newest(one.launched, other.launched);
  else if (order.place === CHANGED) found = newest(one.changed, other.changed);
  else found = compare(one.row.cells[order.place].textContent, other.row.cells[order.place].textContent);
  return (order.down ? -found : found) || (one.app < other.app ? -1 : one.app > other.app ? 1 : 0);
}

// Put rows where they belong. Only those of `moved` leave their place: moving a row costs it its focus.
function arrange(moved) {
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const rows = [...records.values()].sort(compareRecords).map((record) => record.row);
  let next = body.firstElementChild;
  for (const row of rows) {
    while (next && next !== row && moved.has(next)) next = next.nextElementSibling;
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
  if (focused && focused !== document.activeElement) focused.focus({ preventScroll: true });
}

function keeps(record) {
  const wanted = inputs.search.value.trim().toLowerCase();
  return (!wanted || record.words.includes(wanted))
    && (!shownState || (shownState === "active" ? !ENDED.has(record.state) : record.state === shownState))
    && (!inputs.queue.value || record.queue === inputs.queue.value)
    && (!inputs.user.value || record.user === inputs.user.value)
    && (!inputs.age.value || Number.isNaN(record.launched)
      || secondsSince(record.launched) <= Number(inputs.age.value));
}
function filter() {
  let shown = 0;
  for (const record of records.values()) {
    const hidden = !keeps(record);
    if (record.row.hidden !== hidden) record.row.hidden = hidden;
    if (!hidden) shown += 1;
  }
  const count = document.getElementById("count");
  if (count.textContent !== `${shown} of ${records.size}`) count.textContent = `${shown} of ${records.size}`;
  const empty = document.getElementById("empty");
  empty.hidden = shown > 0;
  empty.textContent = records.size ? "No app matches." : noApps;
}
function tick() {
  for (const record of records.values()) {
    if (record.row.hidden) continue;
    for (const [place, text] of [[AGE, ageText(record.launched)], [CHANGED, changedText(record.changed, record.stale)]])
      if (record.row.cells[place].textContent !== text) record.row.cells[place].textContent = text;
  }
}

function showStates() {
  const counts = {};
  for (const { state } of records.values()) counts[state] = (counts[state] || 0) + 1;
  const active = [...records.values()].filter((record) => !ENDED.has(record.state)).length;
  const buttons = [["", "All", records.size], ["active", "Active", active],
    ...STATES.filter((state) => counts[state] || state === shownState)
      .map((state) => [state, state, counts[state] || 0])];
  morphChildren(document.getElementById("states"), buttons.map(([value, label, count]) => make("button",
    { type: "button", "data-state": value, "aria-pressed": String(value === shownState) },
    make("span", { class: `state ${value}` }, label), ` ${count}`)));
}
function showChoices() {
  for (const name of ["queue", "user"]) {
    const known = new Set([...records.values()].map((record) => record[name]).filter(Boolean));
    const offered = new Set([...inputs[name].options].map((option) => option.value));
    for (const value of [...known].sort()) if (!offered.has(value)) inputs[name].append(make("option", {}, value));
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
    const record = read(before ? before.row : fresh);
    records.set(app.id, record);
    moved.add(record.row);
    if (!frame.whole && (!before || before.state !== record.state)) flash(record.row);
  }
  if (moved.size) arrange(moved);
  showProblems(frame.problems);
  showStates();
  showChoices();
  filter();
}
function flash(row) {
  row.classList.remove("changed");
  requestAnimationFrame(() => row.classList.add("changed"));
}
