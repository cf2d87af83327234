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
const shorten = (name, max) => {  // in the middle, as the tables of the page
  const tail = Math.floor((max - 1) / 2);
  return name.length > max ? `${name.slice(0, max - 1 - tail)}\u2026${name.slice(-tail)}` : name;
};

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

// The leaderboard: fill it for a metric or subject, sort, search, group, pin, and save it as text.
// Hidden rows are removed from the document, so that it stays light with many models; print gets all of them.
const allRows = new Map(boards.map((node) => [node, all(node, ".scores tbody tr")]));
const rows = (node) => allRows.get(node);
const paper = matchMedia("print");
const NO_ROW = [null, null, null, null, null, null, 0];
const rowOf = (tr) => metric().rows[Number(tr.dataset.i)] || NO_ROW;
const nameOf = (tr) => board().models[Number(tr.dataset.i)];
const countsOf = (tr) => view().counts[Number(tr.dataset.i)] || [0, 0, 0];
const rank = (row) => (row[3] === null ? DASH : row[4] === null || row[4] === row[5] ? String(row[3]) : `${row[4]}\u2013${row[5]}`);

// --- dots and intervals on one axis -------------------------------------------------------------------------------
const axis = (m, shown) => {
  if (state.zoom && m.percent) return [0, 1];
  const ends = shown.flatMap((tr) => rowOf(tr).slice(0, 3)).filter((x) => x !== null), unit = m.percent ? 1e6 : 1;
  const seen = ends.length ? ticks(Math.min(...ends) / unit, Math.max(...ends) / unit) : [0, 1];
  return seen.length > 1 ? [seen[0], seen[seen.length - 1]] : [seen[0] - 0.5, seen[0] + 0.5];
};
const marks = (ends) => ticks(...ends).filter((t) => t >= ends[0] - 1e-9 && t <= ends[1] + 1e-9);
const share = (x, ends) => Math.round(((x - ends[0]) / (ends[1] - ends[0])) * 10000) / 100;
const whisker = (cell, m, row, ends) => {
  const unit = m.percent ? 1e6 : 1, at = (x) => share(x / unit, ends);
  const picture = draw("svg", { class: "whisker", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
  picture.append(draw("path", { class: "grid", d: marks(ends).map((t) => `M${share(t, ends)} 0v10`).join("") }));
  if (row[1] !== null) picture.append(draw("path", { class: "span", d: `M${at(row[1])} 5H${at(row[2])}` }));
  if (row[0] !== null) picture.append(draw("path", { class: "dot", d: `M${at(row[0])} 5h0` }));
  cell.replaceChildren(picture);
};
const labels = (m, ends) => {
  boardNode().querySelector(".ticks").replaceChildren(...marks(ends).map((t) => draw("text", {
    x: `${share(t, ends)}%`, y: 12, "text-anchor": t <= ends[0] ? "start" : t >= ends[1] ? "end" : "middle",
  }, String(Math.round(t * (m.percent ? 100 : 1) * 1e6) / 1e6))));
};

// --- rows at the current metric and subject -----------------------------------------------------------------------
const fillTable = () => {
  const m = metric(), node = boardNode(), table = node.querySelector(".scores"), initial = state.metric === defaultMetric() && !state.subject;
  all(node, "h2 .metric, caption .metric").forEach((span) => { span.textContent = state.metric + (state.subject ? ` in ${state.subject}` : ""); });
  node.querySelector(".verdict").textContent = m.verdict;
  node.querySelector(".unit").textContent = m.percent ? ", %" : "";
  const ranked = table.querySelector(".ranked");
  let unranked = table.querySelector(".unranked"), star = false;
  if (!unranked) { unranked = make("tbody", { class: "unranked", role: "rowgroup" }); table.append(unranked); }
  for (const tr of rows(node)) {
    const row = rowOf(tr), [attempted, total, attempts] = countsOf(tr), cell = (name) => tr.querySelector(`.${name}`);
    if (cell("rank")) cell("rank").textContent = rank(row);
    cell("score").textContent = number(m, row[0]) + (row[0] !== null && row[6] ? "*" : "");
    star = star || (row[0] !== null && row[6] === 1);
    cell("range").textContent = range(m, row[1], row[2]);
    cell("problems").textContent = `${thousands(attempted)} of ${thousands(total)}`;
    cell("attempts").textContent = thousands(attempts);
    cell("attempts").title = `${(attempts / (attempted || 1)).toFixed(1)} per problem`;
    if (cell("change")) cell("change").classList.toggle("quiet", !initial);
    if (cell("flags")) cell("flags").hidden = !initial;
    const reason = row[3] === null ? m.reasons[tr.dataset.i] || (attempted ? "" : "attempted none of these problems") : "";
    let note = cell("reason");
    if (reason && !note) { note = make("span", { class: "reason" }); cell("model").append(note); }
    if (note) { note.textContent = reason ? `Not ranked: ${reason}` : ""; note.hidden = !reason; }
    tr.home = row[3] === null ? unranked : ranked;
  }
  node.querySelector(".star").hidden = !star;
};

// --- order, groups, search ----------------------------------------------------------------------------------------
const KEYS = {
  rank: (tr) => rowOf(tr)[3] ?? Infinity,
  name: (tr) => nameOf(tr).toLowerCase(),
  score: (tr) => -(rowOf(tr)[0] ?? -Infinity),
  lo: (tr) => -(rowOf(tr)[1] ?? -Infinity),
  problems: (tr) => -countsOf(tr)[0],
  attempts: (tr) => -countsOf(tr)[2],
};
const byRank = (a, b) => (KEYS.rank(a) - KEYS.rank(b)) || (KEYS.score(a) - KEYS.score(b)) || (nameOf(a) < nameOf(b) ? -1 : 1);
const sortRows = () => {
  const [key, down] = state.sort.split("-"), sort = Object.hasOwn(KEYS, key) ? KEYS[key] : KEYS.rank;
  const first = new Map();  // the order of the groups, by their best model
  for (const tr of state.group ? [...rows(boardNode())].sort(byRank) : []) if (!first.has(groupOf(nameOf(tr)))) first.set(groupOf(nameOf(tr)), first.size);
  const compare = (a, b) => {
    const group = state.group ? first.get(groupOf(nameOf(a))) - first.get(groupOf(nameOf(b))) : 0;
    const [x, y] = [sort(a), sort(b)], sign = x < y ? -1 : x > y ? 1 : 0;
    return group || (down ? -sign : sign) || byRank(a, b);
  };
  rows(boardNode()).sort((a, b) => (KEYS.rank(a) === Infinity) - (KEYS.rank(b) === Infinity) || compare(a, b));
  for (const th of all(boardNode(), ".scores thead th[data-key]")) {
    if (th.dataset.key === key) th.setAttribute("aria-sort", down ? "descending" : "ascending"); else th.removeAttribute("aria-sort");
  }
};
const markTiers = (shown) => {
  let first = null, tier = -1;
  const tiers = shown.map((tr) => {
    const row = rowOf(tr);
    if (first === null || row[4] === null || row[4] > first) { first = row[3]; tier += 1; }
    return tier;
  });
  shown.forEach((tr, i) => {
    const [before, after] = [tiers[i - 1] === tiers[i], tiers[i + 1] === tiers[i]];
    tr.className = `t${tiers[i] % 2}${before || after ? " joined" : ""}${after && !before ? " first" : ""}${before && !after ? " last" : ""}`;
  });
};
const groupHeadings = (shown) => {
  if (!state.group) return;
  const count = (list) => list.reduce((out, name) => out.set(groupOf(name), (out.get(groupOf(name)) || 0) + 1), new Map());
  const total = count(board().models), visible = count(shown.map(nameOf)), width = boardNode().querySelectorAll(".scores thead th").length;
  let last = null;
  for (const tr of shown) {
    const group = groupOf(nameOf(tr));
    if (group === last || tr.home.className === "unranked") continue;
    const head = make("tr", { class: "group", role: "row" });
    head.append(make("th", { colspan: width, scope: "rowgroup", role: "rowheader" }, `${group}: ${visible.get(group)} of ${total.get(group)}`));
    tr.before(head);
    last = group;
  }
};
const pin = (name) => update({ pins: state.pins.includes(name) ? state.pins.filter((p) => p !== name) : [...state.pins, name].slice(-MAX_PINS) });
const pinButton = (tr) => {
  const name = nameOf(tr), button = make("button", { type: "button", class: "pin", title: "pin: add to charts and comparisons" });
  button.setAttribute("aria-label", `Pin ${shorten(name, 80)}`);
  button.addEventListener("click", () => pin(name));
  tr.querySelector(".model").prepend(button);
  return button;
};
const filterRows = () => {
  const words = state.search.toLowerCase().trim(), node = boardNode(), m = metric();
  const matching = rows(node).filter((tr) => !words || nameOf(tr).toLowerCase().includes(words));
  const first = state.group ? [...matching].sort(byRank) : matching;
  const selected = new Set(state.all || words ? matching : first.slice(0, data.top));
  const shown = rows(node).filter((tr) => selected.has(tr) || state.pins.includes(nameOf(tr)));
  const ends = axis(m, shown), drawn = `${state.subject} ${state.metric} ${ends}`;
  if (node.dataset.drawn !== drawn) { rows(node).forEach((tr) => tr.querySelector(".plot").replaceChildren()); labels(m, ends); node.dataset.drawn = drawn; }
  for (const tr of shown) {
    const pinned = state.pins.includes(nameOf(tr));
    tr.className = "t0";
    if (!tr.querySelector(".whisker")) whisker(tr.querySelector(".plot"), m, rowOf(tr), ends);
    const button = tr.querySelector(".pin") || pinButton(tr);
    button.setAttribute("aria-pressed", String(pinned));
    button.textContent = pinned ? "\u25c6" : "\u25c7";
  }
  if (!state.group && (!state.sort || state.sort === "rank")) markTiers(shown.filter((tr) => rowOf(tr)[3] !== null));
  shown.forEach((tr) => {
    const pinned = state.pins.includes(nameOf(tr));
    tr.classList.toggle("pinned", pinned);
    showName(tr.querySelector(".model bdi"), pinned);
  });
  for (const body of all(node, ".scores tbody")) {
    body.replaceChildren(...shown.filter((tr) => tr.home === body));
    body.hidden = !body.rows.length;
  }
  groupHeadings(shown);
  const button = node.querySelector(".more .all"), total = board().models.length;
  button.hidden = total <= data.top || words !== "";
  button.textContent = state.all ? `Show the first ${data.top}` : `Show all ${total}`;
  node.querySelector(".more").hidden = false;
  $("matches").textContent = words ? `${matching.length} models match` : "";
};

// --- long names on a phone: cut in the middle, whole on tap ---------------------------------------------------------
const phone = matchMedia("(max-width: 37.4rem)");
const showName = (bdi, whole, max = 28) => {
  bdi.parts = bdi.parts || [...bdi.childNodes];
  const text = bdi.parts.map((part) => part.textContent).join("");
  bdi.replaceChildren(...(whole || text.length <= max || !phone.matches ? bdi.parts : [shorten(text, max)]));
};

// --- the visible table as text ------------------------------------------------------------------------------------
const visibleRows = (node) => all(node, ".scores tbody tr[data-i]").map((tr) => [rank(rowOf(tr)), nameOf(tr), tr.querySelector(".score").textContent, tr.querySelector(".range").textContent]);
const tableHead = () => ["rank", "model", state.metric + (state.subject ? ` in ${state.subject}` : "") + (metric().percent ? " (%)" : ""), "interval"];
const saveCsv = (node) => {
  const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replace(/"/g, '""')}"`;
  const text = [tableHead(), ...visibleRows(node)].map((row) => row.map(cell).join(",")).join("\n");
  const link = make("a", { download: "leaderboard.csv" });
  link.href = URL.createObjectURL(new Blob(["\ufeff", text, "\n"], { type: "text/csv" }));
  link.click();
};
const copyMarkdown = async (node, button) => {
  const cell = (text) => text.replace(/([\\|`*_[\]<>])/g, "\\$1");
  const lines = [tableHead().map(cell), ["--:", "---", "--:", "---"], ...visibleRows(node).map((row) => row.map(cell))].map((row) => `| ${row.join(" | ")} |`);
  const text = lines.join("\n"), area = make("textarea", { "aria-label": "Markdown", rows: 6 }, text);
  all(node, ".more textarea").forEach((old) => old.remove());
  button.after(area);
  area.select();
  try { await navigator.clipboard.writeText(text); area.remove(); button.textContent = "Copied"; } catch { button.textContent = "Copy the text below"; }
};
