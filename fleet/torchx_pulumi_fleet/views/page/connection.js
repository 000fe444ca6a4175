// Requests to the controller. All addresses are relative: an ingress may serve the page below a path of its own.
const SILENCE_MS = 45000; // The stream says something at least every 15 s.
const LONGEST_WAIT_MS = 30000;
const watchers = { frame: [], line: [] };

class RequestError extends Error {
  constructor(status, message, waitMs) {
    super(message);
    this.status = status;
    this.waitMs = waitMs;
  }
}
async function request(path, options) {
  const response = await fetch(`api/v1/${path}`, { cache: "no-store", ...options });
  if (response.ok) return response;
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error.message || message;
  } catch { /* It is not from the controller, and its status says enough. */ }
  if (response.status === 401) say("logged-out");
  throw new RequestError(response.status, message, 1000 * Number(response.headers.get("Retry-After")) || 0);
}
const json = async (path, signal) => (await request(path, { signal })).json();
// Everything that is known of an app: asked of the controller, or in a page without one.
async function detailOf(id, signal) {
  if (page.version) return json(`apps/${encodeURIComponent(id)}`, signal);
  if (!records.has(id)) throw new RequestError(404, "");
  return records.get(id).app;
}
const waitFor = (failures, error) =>
  Math.max(Math.min(1000 * 2 ** failures, LONGEST_WAIT_MS) * (0.5 + Math.random() / 2), error.waitMs || 0);
const clock = (time) => new Date(time).toLocaleTimeString([], { hour12: false });

// Call `take` with each part of a text as it arrives; the sender waits while `take` works.
async function readText(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    await take(value);
  }
}

// What the line at the top, or the bar at the bottom, says of the connection.
const line = { kind: "", since: null, why: "" };
function say(kind, why) {
  if (line.kind === "logged-out") return;
  if (kind === "lost") line.since = line.since || Date.now();
  else line.since = null;
  Object.assign(line, { kind, why: why || "" });
  for (const watcher of watchers.line) watcher(line);
}

const stream = { id: page.version, failures: 0, abort: null, timer: 0 };
function disconnect() {
  clearTimeout(stream.timer);
  if (stream.abort) stream.abort.abort();
  stream.abort = null;
}
async function connect() {
  disconnect();
  const abort = stream.abort = new AbortController();
  let silence;
  const heard = () => {
    clearTimeout(silence);
    silence = setTimeout(() => abort.abort("nothing arrived for a while"), SILENCE_MS);
  };
  try {
    heard();
    const response = await request(`stream?since=${encodeURIComponent(stream.id)}`, { signal: abort.signal });
    say("live");
    const events = new EventReader(takeEvent);
    await readText(response, (text) => { heard(); events.take(text); });
    throw new Error("the controller ended the connection");
  } catch (error) {
    if (stream.abort !== abort || line.kind === "logged-out") return;
    say("lost", error instanceof RequestError ? error.message : "");
    stream.timer = setTimeout(connect, waitFor(stream.failures++, error));
  } finally {
    clearTimeout(silence);
  }
}
function takeEvent(event) {
  if (event.id) stream.id = event.id;
  stream.failures = 0;
  if (event.type !== "fleet") return;
  const frame = JSON.parse(event.data);
  for (const watcher of watchers.frame) watcher(frame);
}

// Reads server-sent events from parts of a text.
class EventReader {
  constructor(take) {
    this.take_event = take;
    this.parts = [];
    this.event = { type: "", id: "", data: [] };
  }
  take(text) {
    const lines = text.split("\n");
    for (const [place, part] of lines.entries()) {
      this.parts.push(part);
      if (place === lines.length - 1) break;
      this.line(this.parts.join("").replace(/\r$/, ""));
      this.parts = [];
    }
  }
  line(text) {
    if (!text) {
      if (this.event.data.length) this.take_event({ ...this.event, data: this.event.data.join("\n") });
      this.event = { type: "", id: "", data: [] };
      return;
    }
    const end = text.indexOf(":");
    const name = end < 0 ? text : text.slice(0, end);
    const value = end < 0 ? "" : text.slice(end + 1).replace(/^ /, "");
    if (name === "event") this.event.type = value;
    else if (name === "id") this.event.id = value;
    else if (name === "data") this.event.data.push(value);
  }
}
