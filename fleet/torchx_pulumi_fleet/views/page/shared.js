// The columns, the apps, when they were read; `version` of a page without a controller is null.
const page = JSON.parse(document.getElementById("data").textContent);
const pageTitle = document.title;
let listTitle = pageTitle;

const UNSEEN = /[\u0080-\u009f\u2028-\u202e\u2066-\u2069]/g; // They end lines, or turn the order of text around.
const visible = (text) =>
  text.replace(UNSEEN, (sign) => `<U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}>`);

// Text only: nothing of an app is ever read as markup.
function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  const shown = children.filter((child) => child !== null && child !== undefined && child !== "");
  element.append(...shown.map((child) => typeof child === "string" ? visible(child) : child));
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

const todo = (text) => [make("b", {}, "What to do: "), text];
function stateOf(state) { return make("span", { class: `state ${state || "UNKNOWN"}` }, state || "UNKNOWN"); }
