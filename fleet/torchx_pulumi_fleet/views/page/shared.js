// The columns, the apps, when they were read; `version` of a page without a controller is null.
const page = JSON.parse(document.getElementById("data").textContent);
const pageTitle = document.title;
let listTitle = pageTitle;

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

const todo = (text) => [make("b", {}, "What to do: "), text];
function stateOf(state) { return make("span", { class: `state ${state || "UNKNOWN"}` }, state || "UNKNOWN"); }
