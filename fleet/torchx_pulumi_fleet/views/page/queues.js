// GPUs and CPUs of each queue: what its running replicas use, what its apps ask for besides, and what is free.
const QUEUES_MS = 10000;
const queues = { known: [], at: 0, timer: 0 }; // as the clusters have them, when they were asked, and the next time

function amountsOf(name, apps, resource) {
  const sum = (value) => apps.reduce((total, app) => total + value(app), 0);
  const used = sum((app) => app[`${resource}s_running`]);
  const asked = sum((app) => Math.max(app[`${resource}s`] - app[`${resource}s_running`], 0));
  const same = queues.known.filter((queue) => queue.name === name);
  const bounded = same.length > 0 && same.every((queue) => resource in queue.capability);
  const free = ({ capability, allocated }) => Math.max(capability[resource] - (allocated[resource] || 0), 0);
  return { used, asked, free: bounded ? same.reduce((total, queue) => total + free(queue), 0) : null };
}
const mostOf = ({ used, asked, free }) => used + Math.max(asked, free || 0);
function amountText({ used, asked, free }) {
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: 1 });
  return [`${number(used)} used`, asked ? `${number(asked)} asked` : "", free === null ? "" : `${number(free)} free`]
    .filter(Boolean).join(", ");
}
function amountCell(amounts) {
  const { used, asked, free } = amounts, most = mostOf(amounts);
  if (!most) return "";
  const part = (css, from, size) =>
    draw("rect", { class: css, x: `${100 * from / most}%`, width: `${100 * size / most}%`, height: 8, rx: 2 });
  const bar = draw("svg", { height: 8, "aria-hidden": "true" }, part("track", 0, used + (free || 0)),
    part("fill RUNNING", 0, used), part("fill PENDING", used, asked));
  return make("div", { class: "amount" }, bar, amountText(amounts));
}
// What is free is known of resources with a capability in queues that the controller can read.
function leftOut(rows) {
  const isUnknown = ({ used, asked, free }) => used + asked && free === null;
  const names = rows.filter(({ isQueue, gpu, cpu }) => isQueue && (isUnknown(gpu) || isUnknown(cpu)))
    .map(({ name }) => name).join(", ");
  const text = page.version ? `Free is left out for ${names}: no capability is set, or it cannot be read.`
    : "Only a controller knows what is free.";
  return names ? [make("p", { class: "quiet" }, text)] : [];
}
document.getElementById("queues").open = innerWidth > 700;
function showQueues() {
  // An app without objects in the cluster asks it for nothing, though its end is not known.
  const apps = [...records.values()].map(({ app }) => app)
    .filter(({ state, reason }) => !ENDED.has(state) && reason !== "NotFound");
  // What runs without a queue is used as well.
  const nameOf = ({ queue, scheduler }) => queue || `no queue (${scheduler})`;
  const names = new Set([...apps.map(nameOf), ...queues.known.map(({ name }) => name)]);
  const rows = [...names].sort(compare).map((name) => {
    const mine = apps.filter((app) => nameOf(app) === name);
    const isQueue = mine.some(({ queue }) => queue);
    return { name, isQueue, gpu: amountsOf(name, mine, "gpu"), cpu: amountsOf(name, mine, "cpu") };
  }).filter(({ gpu, cpu }) => mostOf(gpu) + mostOf(cpu));
  document.getElementById("queues").hidden = !rows.length;
  const cells = rows.map(({ name, gpu, cpu }) => [name, amountCell(gpu), amountCell(cpu)]);
  morphChildren(document.getElementById("queue-rows"),
    [table("Queues", ["Queue", "GPU", "CPU"], cells), ...leftOut(rows)]);
  const total = (key, value) => rows.reduce((sum, row) => sum + row[key][value], 0);
  const key = total("gpu", "used") + total("gpu", "asked") ? "gpu" : "cpu";
  const all = amountText({ used: total(key, "used"), asked: total(key, "asked"), free: null });
  document.getElementById("queue-total").textContent = `Queues, ${key.toUpperCase()}s: ${all}`;
  clearTimeout(queues.timer);
  if (page.version && !document.hidden)
    queues.timer = setTimeout(readQueues, Math.max(queues.at + QUEUES_MS - Date.now(), 0));
}
async function readQueues() {
  queues.at = Date.now();
  try {
    queues.known = (await json("queues")).queues;
  } catch {
    queues.known = [];
  }
  showQueues();
}
