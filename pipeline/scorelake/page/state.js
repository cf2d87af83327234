// The data of the page, the state of the view (kept in the address), and number formats.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const all = (node, selector) => [...node.querySelectorAll(selector)];
const boards = all(document, ".board");
const DASH = "\u2013", MINUS = "\u2212", MAX_PINS = 4;
const state = { board: 0, subject: "", metric: data.metric, search: "", sort: "", zoom: false, all: false, group: false, pins: [] };

const board = () => data.boards[state.board];
const view = () => board().subjects.find((its) => its.name === state.subject) || board().overall;
const metric = () => view().metrics[state.metric];
const boardNode = () => boards[state.board];
const defaultMetric = () => (Object.hasOwn(board().overall.metrics, data.metric) ? data.metric : Object.keys(board().overall.metrics)[0]);

const make = (name, attributes, text) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const draw = (name, attributes, text) => {
  const node = document.createElementNS(document.querySelector("svg").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
};
const shorten = (name, max) => (name.length > max ? `${name.slice(0, max - 1)}\u2026` : name);

// --- numbers: rounded half up from millionths, as in the tables of the page ---------------------------------------
const digits = (value, places) => {
  const text = String(Math.abs(value)).padStart(places + 1, "0");
  return (value < 0 ? "-" : "") + text.slice(0, -places) + "." + text.slice(-places);
};
const number = (m, x) => {
  if (x === null || x === undefined) return DASH;
  if (!m.percent) return String(Number(x.toPrecision(4)));
  const unit = 10 ** (4 - m.places), units = Math.floor((Math.abs(x) + unit / 2) / unit);
  return digits(x < 0 ? -units : units, m.places);
};
const range = (m, lo, hi) => (lo === null ? DASH : `${number(m, lo)} to ${number(m, hi)}`);
const both = (m, x, lo, hi) => number(m, x) + (m.percent ? "%" : "") + (lo === null ? "" : ` (${range(m, lo, hi)})`);
const signed = (m, x) => {
  const text = m.percent ? digits(x, 1) : String(Number(x.toPrecision(4)));
  return text.startsWith("-") ? text.replace("-", MINUS) : `+${text}`;
};
const thousands = (x) => x.toLocaleString("en-US");

// --- axes: about five round numbers -------------------------------------------------------------------------------
const ticks = (lo, hi) => {
  const span = Math.max(hi - lo, 1e-9);
  const power = 10 ** (span < 1 ? -String(Math.floor(1 / span)).length : String(Math.floor(span)).length - 1);
  const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20].map((s) => s * power).find((s) => span / s <= 5);
  const out = [];
  for (let i = Math.floor(lo / step + 1e-9); i <= Math.ceil(hi / step - 1e-9); i += 1) out.push(Math.round(i * step * 1e9) / 1e9);
  return out;
};

// --- organizations: the part of a name before the slash ------------------------------------------------------------
const groupOf = (name) => (name.includes("/") ? name.slice(0, name.indexOf("/")) : "other");
const groups = () => { const many = new Set(board().models.map(groupOf)).size; return many > 1 && many < board().models.length ? many : 0; };

// --- state: in the address, so that a view can be linked ----------------------------------------------------------
const normalize = () => {
  state.subject = view().name;
  if (!Object.hasOwn(view().metrics, state.metric)) state.metric = Object.hasOwn(view().metrics, defaultMetric()) ? defaultMetric() : Object.keys(view().metrics)[0];
  state.group = state.group && groups() > 0;
  state.pins = [...new Set(state.pins)].filter((name) => board().models.includes(name)).slice(0, MAX_PINS);
};
const saveState = () => {
  const params = new URLSearchParams();
  if (state.board) { params.set("benchmark", board().benchmark); params.set("protocol", board().protocol); }
  if (state.subject) params.set("subject", state.subject);
  if (state.metric !== defaultMetric()) params.set("metric", state.metric);
  if (state.search) params.set("search", state.search);
  if (state.sort) params.set("sort", state.sort);
  if (state.zoom) params.set("axis", "full");
  if (state.all) params.set("all", "1");
  if (state.group) params.set("group", "1");
  state.pins.forEach((name) => params.append("pin", name));
  const text = params.toString();
  try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* some viewers do not allow it */ }
};
const loadState = () => {
  const params = new URLSearchParams(location.hash.slice(1)), text = (key) => params.get(key) || "";
  const index = data.boards.findIndex((b) => b.benchmark === params.get("benchmark") && b.protocol === text("protocol"));
  Object.assign(state, { board: Math.max(index, 0), subject: text("subject"), metric: text("metric"), search: text("search"), sort: text("sort") });
  Object.assign(state, { zoom: text("axis") === "full", all: text("all") === "1", group: text("group") === "1", pins: params.getAll("pin") });
  normalize();
};
