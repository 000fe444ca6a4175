// Times, and pictures of one app: what happened when, and the states of many replicas.
const GRID_FROM = 8; // replicas; fewer are seen at once in the table
const MOST_SQUARES = 4096;
const SQUARE = 14;
const MOST_LANES = 5;
const LEAST = 1; // percent of a timeline: what took no time is seen, too

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const picture = (label, attributes, ...children) =>
  draw("svg", { role: "img", "aria-label": label, ...attributes }, ...children);

// A time as the reader's clock shows it, with the day unless it is today, and how long ago it was.
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
const ofToday = new Intl.DateTimeFormat([], CLOCK);
const ofOtherDays = new Intl.DateTimeFormat([], { day: "numeric", month: "short", ...CLOCK });
function localTime(time) {
  const date = new Date(time);
  return (date.toDateString() === new Date().toDateString() ? ofToday : ofOtherDays).format(date);
}
const agoText = (time) => `${age(secondsSince(Date.parse(time)))} ago`;
function when(time) {
  if (!time) return "";
  return make("span", {}, make("time", { datetime: time, title: time }, localTime(time)), " ",
    make("span", { class: "quiet", "data-ago": time }, agoText(time)));
}
const between = (from, to) => age(Math.max(to - from, 0) / 1000);

// The attempts of the present run, each from its first start to its last end; null: it goes on.
function attemptsOf(run) {
  const found = new Map();
  for (const item of run ? run.attempts : []) {
    if (item.init || !item.started_at) continue;
    const from = Date.parse(item.started_at), to = item.finished_at ? Date.parse(item.finished_at) : null;
    const known = found.get(item.attempt) || { number: item.attempt, from, to, failed: false };
    known.failed = known.failed || Boolean(item.exit_code);
    known.from = Math.min(known.from, from);
    known.to = known.to === null || to === null ? null : Math.max(known.to, to);
    found.set(item.attempt, known);
  }
  return [...found.values()].sort((a, b) => a.number - b.number).slice(-MOST_LANES);
}

// When an app was queued, started and ended, as a picture and as a list. `run` has its attempts, if they are known.
function timeline(app, run) {
  const time = (name) => app[name] ? Date.parse(app[name]) : null;
  const attempts = attemptsOf(run);
  const ended = ENDED.has(app.state), lost = app.state === "UNKNOWN";
  const queued = time("queued_at") ?? time("launched_at");
  const starts = [time("started_at"), ...attempts.map((item) => item.from)].filter((item) => item !== null);
  const started = starts.length ? Math.min(...starts) : null;
  const from = queued ?? started;
  if (from === null) return "";
  const finished = ended || lost ? time("finished_at") ?? time("observed_at") : null;
  const until = finished ?? now(), to = Math.max(until, from + 1000);
  const ran = app.state === "RUNNING" ? "runs for" : "ran";
  const isKnown = app.state === "RUNNING" || (ended && finished !== null);
  const took = started !== null && isKnown ? `${ran} ${between(started, until)}` : "";
  const moments = [];
  const moment = (name, at, more) =>
    moments.push(make("li", {}, make("b", {}, name), " ", when(new Date(at).toISOString()), more ? `, ${more}` : ""));
  if (queued !== null) moment("Queued", queued, started === null ? "" : `waited ${between(queued, started)}`);
  if (started !== null) moment("Started", started, took);
  if (attempts.length > 1)
    for (const { number, from: begin, to: end, failed } of attempts)
      moment(`Attempt ${number}`, begin,
        end === null ? "" : `${failed ? "failed" : "ended"} after ${between(begin, end)}`);
  const end = { CANCELLED: "Cancelled", FAILED: "Failed" }[app.state] || "Ended";
  if (ended && finished !== null) moment(end, finished, "");
  const place = (at) => 100 * Math.min(Math.max((at - from) / (to - from), 0), 1);
  const bar = (lane, begin, end, state) => {
    const wide = Math.max(place(end) - place(begin), LEAST);
    return draw("rect", { class: `fill ${state}`, x: `${Math.min(place(begin), 100 - wide)}%`, y: lane * 10,
      width: `${wide}%`, height: lane ? 6 : 10, rx: 2 });
  };
  const bars = [bar(0, from, started ?? to, "PENDING")];
  if (started !== null) bars.push(bar(0, started, to, app.state));
  if (attempts.length > 1)
    for (const [lane, { from: begin, to: end, failed }] of attempts.entries())
      bars.push(bar(lane + 1.4, begin, end ?? to, end === null ? "RUNNING" : failed ? "FAILED" : "SUCCEEDED"));
  const height = attempts.length > 1 ? attempts.length * 10 + 20 : 10;
  const waited = `${started === null && !ended ? "waits for" : "waited"} ${between(from, started ?? to)}`;
  const parts = [waited, took, attempts.length > 1 ? `${attempts.length} attempts` : ""];
  return make("figure", { class: "timeline" },
    picture(`Timeline: ${parts.filter(Boolean).join(", ")}`, { width: "100%", height }, ...bars),
    make("ol", { class: "moments" }, ...moments));
}

// The states of a role's replicas, a square for each; those that are not listed come in the order of their states.
function stateGrid(role, width) {
  const count = Math.min(role.wanted, MOST_SQUARES);
  if (count < GRID_FROM) return "";
  const left = { ...role.counts };
  const listed = new Map(role.replicas.map((item) => [item.id, item]));
  for (const item of listed.values()) left[item.state] = (left[item.state] || 0) - 1;
  const others = STATES.flatMap((state) => Array(Math.min(Math.max(left[state] || 0, 0), count)).fill(state));
  const columns = Math.max(Math.floor(width / SQUARE), 8);
  const squares = [];
  for (let id = 0; id < count; id += 1) {
    const item = listed.get(id);
    const state = (item ? item.state : others.shift()) || "UNSUBMITTED";
    const x = (id % columns) * SQUARE, y = Math.floor(id / columns) * SQUARE;
    const text = item ? [`${role.name}/${id} ${state}`, item.reason, item.node].filter(Boolean).join(", ") : state;
    squares.push(draw("path", { class: `fill ${state}`, d: state === "FAILED"
      ? `M${x + 1} ${y + 1}l10 10m0-10l-10 10` : `M${x} ${y}h12v12h-12z` }, draw("title", {}, text)));
  }
  const rows = Math.ceil(count / columns);
  const more = role.wanted > count ? `; ${role.wanted - count} more are not drawn` : "";
  return make("figure", { class: "grid" }, picture(`${role.wanted} replicas: ${countsText(role)}${more}`,
    { width: columns * SQUARE, height: rows * SQUARE }, ...squares),
    make("figcaption", {}, ...Object.entries(role.counts)
      .map(([state, number]) => make("span", {}, stateOf(state), ` ${number}`))));
}
const countsText = (role) => Object.entries(role.counts).map(([state, count]) => `${count} ${state}`).join(", ");

// The picture in the tab: a disc in the color of a state.
function showIcon(state) {
  const colors =
    { RUNNING: "#1a73e8", SUCCEEDED: "#188038", FAILED: "#d93025", PENDING: "#e8a200", SUBMITTED: "#e8a200" };
  const disc = `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'><circle cx='8' cy='8' r='7' fill='${
    colors[state] || "#80868b"}'/></svg>`;
  document.querySelector("link[rel=icon]").href = `data:image/svg+xml,${encodeURIComponent(disc)}`;
}
setInterval(() => {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("[data-ago]")) {
    const text = agoText(element.dataset.ago);
    if (element.textContent !== text) element.textContent = text;
  }
}, 5000);
