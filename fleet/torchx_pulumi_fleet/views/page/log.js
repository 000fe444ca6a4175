// The log of a replica, or of all of them by time. Its text is only ever text: colors of terminals are removed, control
// characters are shown.
const MOST_LINES = 5000;
const MOST_CHARACTERS = 4000000;
const BLOCK_LINES = 100;
const MOST_REPLICAS = 10000; // to choose from; those that an app lists are always offered
const MOST_MERGED = 100; // replicas that are read for the log of all
const AT_ONCE = 4;
const REPLICA_MS = 10000; // for the lines of a replica; without them the others are shown
const ALL = "*";
const TIME = /^(\d{4}-\d\d-\d\dT[\d:]+(?:\.(\d+))?(?:Z|[+-]\d\d:\d\d)) /;
const NOTE = "# torchx-pulumi: ";
const COLORS = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g; // shown as ^G
const logBox = document.getElementById("log"); // null: logs are not served
const log = {
  id: "", app: null, runs: [], abort: null, timer: 0, failures: 0, ended: true,
  blocks: [], lines: 0, characters: 0, dropped: 0, pending: [], flushing: 0, // lines, of which notes are none
  pinned: true, unseen: 0, // at the end, and lines that arrived below what is seen
  find: "", // part of the lines that are shown, in lower case
};
const logInput = (name) => document.getElementById(`log-${name}`);

// As a terminal shows it: what a carriage return overwrote is not shown, a progress bar is its last state.
function clean(line) {
  const text = line.replace(COLORS, "").replace(/\r+$/, "");
  return visible(text.slice(text.lastIndexOf("\r") + 1)
    .replace(CONTROLS, (sign) => `^${String.fromCharCode(sign.charCodeAt(0) ^ 0x40)}`));
}

function logState(text) {
  logInput("state").textContent = text;
  logInput("again").hidden = !log.ended;
}
function clearLog() {
  clearTimeout(log.flushing);
  const empty = { blocks: [], lines: 0, characters: 0, dropped: 0, pending: [], flushing: 0, pinned: true, unseen: 0 };
  Object.assign(log, empty);
  logBox.replaceChildren();
  showEnd();
}
function addLine(text) {
  log.pending.push(text);
  if (log.pending.length > 2 * MOST_LINES) log.dropped += log.pending.splice(0, MOST_LINES).length;
  log.flushing = log.flushing || setTimeout(flush, 50);
}
function newBlock(note) {
  const element = make("div", note ? { class: "note" } : {});
  const block = { element, note, texts: [], lines: 0, characters: 0 };
  log.blocks.push(block);
  logBox.append(element);
  return block;
}
function flush() {
  clearTimeout(log.flushing);
  log.flushing = 0;
  const arrived = log.pending;
  log.pending = [];
  for (let first = 0; first < arrived.length;) {
    const note = arrived[first].startsWith(NOTE);
    let block = log.blocks[log.blocks.length - 1];
    if (!block || note || block.note || block.lines >= BLOCK_LINES) block = newBlock(note);
    const texts = [];
    do {
      texts.push(clean(note ? arrived[first].slice(NOTE.length) : arrived[first]));
      first += 1;
    } while (!note && first < arrived.length && block.lines + texts.length < BLOCK_LINES
      && !arrived[first].startsWith(NOTE));
    block.element.append(found(texts));
    block.texts.push(...texts);
    const lines = note ? 0 : texts.length;
    const characters = texts.reduce((sum, text) => sum + text.length + 1, 0);
    block.lines += lines;
    block.characters += characters;
    log.lines += lines;
    log.characters += characters;
    log.unseen += lines;
  }
  while (log.blocks.length > 1 && (log.lines > MOST_LINES || log.characters > MOST_CHARACTERS)) {
    const block = log.blocks.shift();
    block.element.remove();
    log.lines -= block.lines;
    log.characters -= block.characters;
    log.dropped += block.lines;
  }
  showEnd();
  showFound();
  toEnd();
}
function toEnd() {
  if (log.pinned) logBox.scrollTop = logBox.scrollHeight;
}
const isFound = (text) => !log.find || text.toLowerCase().includes(log.find);
const found = (texts) => texts.filter(isFound).map((text) => `${text}\n`).join("");
function findAgain() {
  log.find = logInput("find").value.toLowerCase();
  for (const block of log.blocks) block.element.textContent = found(block.texts);
  showFound();
  toEnd();
}
function showFound() {
  const count = (sum, block) => sum + (block.note ? 0 : block.texts.filter(isFound).length);
  logInput("found").textContent = log.find ? `${log.blocks.reduce(count, 0)} of ${log.lines} lines` : "";
}
function showEnd() {
  if (log.pinned) log.unseen = 0;
  logInput("end").hidden = log.pinned;
  logInput("end").textContent = log.unseen ? `To the end, ${log.unseen} new` : "To the end";
  logInput("dropped").hidden = !log.dropped;
  logInput("dropped").textContent = `${log.dropped} earlier lines are not shown here.`;
}

function logParameters() {
  const [role, replica] = splitReplica(logInput("replica").value);
  const chosen = logInput("run").value ? JSON.parse(logInput("run").value) : {};
  return { role, replica, ...chosen, timestamps: logInput("times").checked };
}
function splitReplica(text) {
  const end = text.lastIndexOf("/");
  return [text.slice(0, end), text.slice(end + 1)];
}
function stopLog() {
  clearTimeout(log.timer);
  if (log.abort) log.abort.abort();
  log.abort = null;
}
async function readOne(address, parameters, abort) {
  const response = await request(`${address}?${new URLSearchParams(parameters)}`, { signal: abort.signal });
  logState(parameters.follow ? "Following" : "");
  let rest = "";
  await readText(response, (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    lines.forEach(addLine);
    log.failures = 0;
  });
  if (rest) addLine(rest);
}
async function startLog() {
  stopLog();
  clearLog();
  const abort = log.abort = new AbortController();
  const parameters = logParameters();
  const following = logInput("follow").checked;
  const address = `apps/${log.id}/logs`;
  const all = logInput("replica").value === ALL;
  logInput("file").hidden = all;
  logInput("file").href = `api/v1/${address}?${new URLSearchParams(parameters)}`;
  logInput("file").download = `${log.app.name}-${parameters.role}-${parameters.replica}.log`;
  log.ended = false;
  logState("Reading ...");
  try {
    let end = "End of the log";
    if (all) end = await readAll(abort, following);
    else await readOne(address, { ...parameters, follow: following, tail: MOST_LINES }, abort);
    if (log.abort !== abort) return undefined;
    flush();
    log.ended = true;
    logState(log.lines ? end : "The log is empty.");
  } catch (error) {
    if (log.abort !== abort) return;
    flush();
    log.ended = true;
    if (error.status === 401) return logState("");
    if (error.status && error.status !== 503) return logState(error.message);
    const wait = waitFor(log.failures++, error);
    const what = error.status ? error.message : `Connection lost at ${clock(Date.now())}`;
    logState(`${what}; reading again in ${Math.ceil(wait / 1000)} s`);
    log.timer = setTimeout(startLog, wait);
  }
  return undefined;
}

// The logs of all replicas, merged by time: the last lines of each, and again and again what was written since.
async function readAll(abort, following) {
  const all = [...logInput("replica").options].filter((option) => option.value !== ALL);
  const failed = all.filter((option) => option.textContent.endsWith(" FAILED"));
  const names = [...new Set([...failed, ...all])].slice(0, MOST_MERGED).map((option) => option.value);
  const tail = Math.floor(MOST_LINES / names.length); // more would push the first ones out
  const known = new Map();
  for (;;) {
    const over = !following || ENDED.has(log.app.state);
    const lines = [], left = [...names], failures = [];
    let logs = 0;
    const next = async () => {
      while (left.length) {
        const name = left.shift();
        try {
          await readNew(name, tail, known, lines, abort.signal);
          logs += 1;
        } catch (error) {
          // One that has no log yet, or no pod, is no failure.
          if (!error.status || error.status === 401) throw error;
          if (![404, 409].includes(error.status)) failures.push({ name, error });
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, next));
    if (log.abort !== abort) return "";
    if (!logs && failures.length) throw failures[0].error;
    lines.sort((one, other) => (one.key < other.key ? -1 : one.key > other.key ? 1 : 0));
    for (const { time, name, text } of lines) addLine(`${logInput("times").checked ? `${time} ` : ""}${name}: ${text}`);
    log.failures = 0;
    const why = failures.length ? `; ${failures[0].name}: ${failures[0].error.message}` : "";
    const which = `${logs} of ${all.length} replicas${why}`;
    if (over) return `End of the logs of ${which}`;
    logState(`Following ${which}`);
    await new Promise((resolve) => { log.timer = setTimeout(resolve, Math.max(3000, 100 * names.length)); });
  }
}
// Add the lines of a replica that are not known yet. They are asked for from the end of the answer before the last one:
// a container that was restarted meanwhile may have given the lines of its next run before the last ones of this run.
async function readNew(name, tail, known, lines, signal) {
  const [role, replica] = splitReplica(name);
  const last = known.get(name) || { since: "", until: { key: "", time: "" }, counts: new Map() };
  const query = new URLSearchParams({ role, replica, ...(last.since ? { since: last.since } : { tail }) });
  const late = AbortSignal.timeout(REPLICA_MS);
  let text;
  try {
    text = await (await request(`apps/${log.id}/logs?${query}`, { signal: AbortSignal.any([signal, late]) })).text();
  } catch (error) {
    throw late.aborted && !signal.aborted ? new RequestError(503, "it does not answer") : error;
  }
  let at = { key: "", time: last.since }; // time of a line, and its key for comparing
  let until = last.until; // the latest of them
  const counts = new Map(); // a line to how often it came
  for (const line of text.split("\n")) {
    if (!line || line.startsWith(NOTE)) continue;
    const found = TIME.exec(line); // A part of a line has none.
    const stamp = found && !Number.isNaN(Date.parse(found[1])) ? found : null;
    if (stamp)
      at = { time: stamp[1], key: new Date(stamp[1]).toISOString().slice(0, 19) + (stamp[2] || "").padEnd(9, "0") };
    if (at.key > until.key) until = at;
    const own = `${at.key} ${line}`, count = (counts.get(own) || 0) + 1;
    counts.set(own, count);
    if (count > (last.counts.get(own) || 0))
      lines.push({ ...at, name, text: stamp ? line.slice(at.time.length + 1) : line });
  }
  known.set(name, { since: last.until.time || until.time, until, counts });
}

// Replace the options of a selection and keep its value, if it is still offered.
function choose(select, choices) {
  const value = select.value;
  morphChildren(select, choices.map(([key, label]) => make("option", { value: key }, label)));
  if (choices.some(([key]) => key === value)) select.value = value;
  return select.value !== value;
}
function showReplicas() {
  const choices = new Map();
  for (const role of log.app.roles) {
    const states = new Map(role.replicas.filter((item) => Number.isInteger(item.id)).map((item) => [item.id, item.state]));
    for (let id = 0; id < role.wanted && choices.size + states.size < MOST_REPLICAS; id += 1)
      if (!states.has(id)) states.set(id, "");
    for (const [id, state] of [...states].sort((a, b) => a[0] - b[0]))
      choices.set(`${role.name}/${id}`, `${role.name}/${id} ${state || ""}`.trim());
  }
  for (const { role, replica } of log.runs.flatMap((run) => run.attempts))
    if (!choices.has(`${role}/${replica}`)) choices.set(`${role}/${replica}`, `${role}/${replica}`);
  const all = choices.size > 1 ? [[ALL, "all, by time"]] : [];
  return choose(logInput("replica"), [...all, ...choices]);
}
function showLogRuns() {
  const [role, replica] = splitReplica(logInput("replica").value);
  const choices = [["", "now"]];
  for (const run of log.runs)
    for (const item of run.attempts)
      if (item.role === role && String(item.replica) === replica && hasLog(run, item))
        choices.push([runChoice(run, item), runLabel(run, item)]);
  return choose(logInput("run"), choices);
}
const hasLog = (run, item) => run.current || item.archived;
const resultOf = (item) => item.running ? "running" : item.exit_code === null ? "" : `exit ${item.exit_code}`;
const runChoice = (run, item) => JSON.stringify({ run: run.uid, attempt: item.attempt, container: item.container });
function runLabel(run, item) {
  const time = item.started_at || run.started_at;
  return [`attempt ${item.attempt}`, item.default ? "" : item.container, resultOf(item),
    time ? `${age(secondsSince(Date.parse(time)))} ago` : "", run.current ? "" : "earlier run",
  ].filter(Boolean).join(", ");
}

// Show the log of an app. `wanted`: `role/replica`, and the value of a run's option.
async function openLog(detail, runs, wanted) {
  if (!logBox) return;
  const another = log.id !== detail.id;
  const attempt = log.app && log.app.attempt;
  Object.assign(log, { id: detail.id, app: detail, runs });
  if (another) {
    logInput("replica").replaceChildren();
    logInput("run").replaceChildren();
    logInput("follow").checked = !ENDED.has(detail.state);
  }
  let changed = showReplicas() || another;
  if (another && !wanted) {
    const failed = detail.roles.flatMap((role) => role.replicas.filter((item) => item.state === "FAILED")
      .map((item) => `${role.name}/${item.id}`));
    logInput("replica").value = failed[0] || [...logInput("replica").options].map((option) => option.value)
      .find((value) => value !== ALL) || "";
  }
  if (wanted) {
    changed = changed || logInput("replica").value !== wanted.replica;
    logInput("replica").value = wanted.replica;
  }
  showLogRuns();
  if (wanted && wanted.run !== undefined) {
    changed = changed || logInput("run").value !== wanted.run;
    logInput("run").value = wanted.run;
  }
  const waiting = log.ended && log.abort && logInput("follow").checked && !logInput("run").value
    && (attempt !== detail.attempt || !log.lines);
  if (changed || waiting || !log.abort) startLog();
}
function closeLog() {
  stopLog();
  log.id = "";
  log.app = null;
  if (logBox) clearLog();
}
if (logBox) {
  new ResizeObserver(toEnd).observe(logBox);
  logBox.addEventListener("scroll", () => {
    log.pinned = logBox.scrollHeight - logBox.scrollTop - logBox.clientHeight < 24;
    showEnd();
  });
  logInput("end").addEventListener("click", () => {
    log.pinned = true;
    toEnd();
    logBox.focus();
  });
  logInput("replica").addEventListener("change", () => { showLogRuns(); startLog(); });
  for (const name of ["run", "follow", "times"]) logInput(name).addEventListener("change", startLog);
  logInput("find").addEventListener("input", findAgain);
  logInput("wrap").addEventListener("change", () => logBox.classList.toggle("wrap", logInput("wrap").checked));
  logInput("again").addEventListener("click", startLog);
  logInput("form").addEventListener("submit", (event) => event.preventDefault());
}
