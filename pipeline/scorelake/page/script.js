"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const all = (where, what) => [...where.querySelectorAll(what)];
  const boards = all(document, ".board");
  const namespace = (document.querySelector("svg") || {}).namespaceURI;
  const DASH = "\u2013", MOST_PINS = 4, FIRST = 35;
  const state = { board: 0, metric: data.metric, search: "", sort: "", zoom: false, all: false, pins: [] };

  const make = (name, attributes, text) => {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const draw = (name, attributes) => {
    const node = document.createElementNS(namespace, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const board = () => data.boards[state.board];
  const metric = () => board().metrics[state.metric];
  const place = () => boards[state.board];

  // --- numbers: half up from millionths, as the tables of the page are written -----------------------------------
  const number = (m, x) => {
    if (x === null || x === undefined) return DASH;
    if (!m.percent) return String(Number(x.toPrecision(4)));
    const unit = 10 ** (4 - m.places), whole = Math.floor((Math.abs(x) + unit / 2) / unit);
    const digits = String(whole).padStart(m.places + 1, "0");
    return (x < 0 && whole ? "-" : "") + digits.slice(0, -m.places) + "." + digits.slice(-m.places);
  };
  const ticks = (lo, hi) => {
    const span = Math.max(hi - lo, 1e-9);
    const power = 10 ** (span < 1 ? -String(Math.floor(1 / span)).length : String(Math.floor(span)).length - 1);
    const step = [0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5, 10, 20].map((s) => s * power).find((s) => span / s <= 5);
    const out = [];
    for (let i = Math.floor(lo / step + 1e-9); i <= Math.ceil(hi / step - 1e-9); i += 1) out.push(Math.round(i * step * 1e9) / 1e9);
    return out;
  };
  const axis = (m) => (state.zoom && m.percent ? [0, 1] : state.all || state.search ? m.whole : m.axis);
  const marks = (ends) => ticks(...ends).filter((t) => t >= ends[0] - 1e-9 && t <= ends[1] + 1e-9);
  const share = (x, ends) => `${Math.round(((x - ends[0]) / (ends[1] - ends[0])) * 10000) / 100}%`;

  // --- the table --------------------------------------------------------------------------------------------------
  const rows = (where) => all(where, ".scores tbody tr");
  const whisker = (cell, m, row) => {
    const ends = axis(m), unit = m.percent ? 1e6 : 1, picture = draw("svg", { class: "whisker", "aria-hidden": "true" });
    for (const t of marks(ends)) picture.append(draw("line", { class: "grid", x1: share(t, ends), x2: share(t, ends), y1: 0, y2: "100%" }));
    if (row[1] !== null) picture.append(draw("line", { class: "span", x1: share(row[1] / unit, ends), x2: share(row[2] / unit, ends), y1: "50%", y2: "50%" }));
    if (row[0] !== null) picture.append(draw("circle", { class: "dot", cx: share(row[0] / unit, ends), cy: "50%", r: 5 }));
    cell.replaceChildren(picture);
  };
  const labels = (m) => {
    const ends = axis(m), picture = place().querySelector(".ticks");
    picture.replaceChildren(...marks(ends).map((t) => {
      const node = draw("text", { x: share(t, ends), y: 12, "text-anchor": t <= ends[0] ? "start" : t >= ends[1] ? "end" : "middle" });
      node.textContent = String(Math.round(t * (m.percent ? 100 : 1) * 1e6) / 1e6);
      return node;
    }));
  };
  const rank = (row) => (row[3] === null ? DASH : row[4] === null || row[4] === row[5] ? String(row[3]) : `${row[4]}\u2013${row[5]}`);
  const NONE = [null, null, null, null, null, null, 0];
  const row_of = (tr) => metric().rows[Number(tr.dataset.i)] || NONE;
  const name_of = (tr) => board().models[Number(tr.dataset.i)];

  const bands = (shown) => {
    let first = null, tier = -1;
    for (const tr of shown) {
      const row = row_of(tr);
      if (first === null || row[4] === null || row[4] > first) { first = row[3]; tier += 1; }
      tr.className = `t${tier % 2}`;
    }
  };
  const fill = () => {
    const m = metric(), where = place(), table = where.querySelector(".scores");
    const initial = state.metric === data.metric;
    all(where, "h2 .metric, caption .metric").forEach((node) => { node.textContent = state.metric; });
    where.querySelector(".verdict").textContent = m.verdict;
    where.querySelector(".unit").textContent = m.percent ? ", %" : "";
    let ranked = table.querySelector(".ranked"), below = table.querySelector(".below");
    if (!below) { below = make("tbody", { class: "below", role: "rowgroup" }); table.append(below); }
    let star = false;
    for (const tr of rows(where)) {
      const row = row_of(tr), reason = m.reasons[tr.dataset.i], cell = (name) => tr.querySelector(`.${name}`);
      if (cell("place")) cell("place").textContent = rank(row);
      cell("score").textContent = number(m, row[0]) + (row[0] !== null && row[6] ? "*" : "");
      star = star || (row[0] !== null && row[6] === 1);
      cell("range").textContent = row[1] === null ? DASH : `${number(m, row[1])} to ${number(m, row[2])}`;
      if (cell("change")) cell("change").classList.toggle("quiet", !initial);
      let note = cell("reason");
      if (row[3] === null && reason && !note) { note = make("span", { class: "reason" }); cell("model").append(note); }
      if (note) { note.textContent = row[3] === null && reason ? `Not ranked: ${reason}` : ""; }
      (row[3] === null ? below : ranked).append(tr);
    }
    below.hidden = !below.rows.length;
    where.querySelector(".star").hidden = !star;
  };
  const KEYS = {
    place: (tr) => row_of(tr)[3] ?? Infinity,
    name: (tr) => name_of(tr).toLowerCase(),
    score: (tr) => -(row_of(tr)[0] ?? -Infinity),
    lo: (tr) => -(row_of(tr)[1] ?? -Infinity),
    problems: (tr) => -parseInt(tr.querySelector(".problems").textContent.replace(/,/g, ""), 10),
    attempts: (tr) => -parseInt(tr.querySelector(".attempts").textContent.replace(/,/g, ""), 10),
  };
  const order = () => {
    const [key, down] = state.sort.split("-"), sort = KEYS[key] || KEYS.place;
    const compare = (a, b) => {
      const [x, y] = [sort(a), sort(b)], way = x < y ? -1 : x > y ? 1 : 0;
      return (down ? -way : way) || (KEYS.place(a) - KEYS.place(b)) || (KEYS.score(a) - KEYS.score(b)) || (name_of(a) < name_of(b) ? -1 : 1);
    };
    for (const body of all(place(), ".scores tbody")) body.append(...[...body.rows].sort(compare));
    all(place(), ".scores thead th[data-key]").forEach((th) => {
      const on = th.dataset.key === key;
      if (on) th.setAttribute("aria-sort", down ? "descending" : "ascending"); else th.removeAttribute("aria-sort");
    });
  };
  const pin = (tr, name) => {
    const button = make("button", { type: "button", class: "pin", title: "pin: draw its curves" });
    button.setAttribute("aria-label", `Pin ${name.slice(0, 80)}`);
    button.addEventListener("click", () => {
      const pins = state.pins.includes(name) ? state.pins.filter((p) => p !== name) : [...state.pins, name].slice(-MOST_PINS);
      change({ pins });
    });
    tr.querySelector(".model").prepend(button);
    return button;
  };
  const sift = () => {
    const words = state.search.toLowerCase().trim(), where = place(), m = metric();
    let seen = 0, matching = 0;
    const drawn = `${state.metric} ${axis(m)}`;
    if (where.dataset.drawn !== drawn) { rows(where).forEach((tr) => tr.querySelector(".plot").replaceChildren()); labels(m); where.dataset.drawn = drawn; }
    const shown = [];
    for (const tr of rows(where)) {
      const pinned = state.pins.includes(name_of(tr)), match = !words || name_of(tr).toLowerCase().includes(words);
      matching += match ? 1 : 0;
      const keep = (match && (state.all || words || seen < data.top)) || pinned;
      if (match) seen += 1;
      tr.hidden = !keep;
      if (keep) { shown.push(tr); if (!tr.querySelector(".whisker")) whisker(tr.querySelector(".plot"), m, row_of(tr)); }
      if (!keep) continue;
      const button = tr.querySelector(".pin") || pin(tr, name_of(tr));
      button.setAttribute("aria-pressed", String(pinned));
      button.textContent = pinned ? "\u25c6" : "\u25c7";
    }
    if (!state.sort || state.sort === "place") bands(shown.filter((tr) => row_of(tr)[3] !== null)); else shown.forEach((tr) => { tr.className = "t0"; });
    const button = where.querySelector(".more .all"), many = board().models.length;
    button.hidden = many <= data.top || words !== "";
    button.textContent = state.all ? `Show the first ${data.top}` : `Show all ${many}`;
    where.querySelector(".more").hidden = false;
    $("found").textContent = words ? `${matching} models match` : "";
  };

  // --- curves -----------------------------------------------------------------------------------------------------
  const overlay = (names) => {
    const curves = board().curves;
    if (!curves) return;
    for (const figure of all(place(), ".curves figure")) for (const picture of all(figure, "svg.chart")) {
      const layer = picture.querySelector(".pins");
      layer.replaceChildren();
      const [left, right, top, bottom, most, lo, hi] = picture.dataset.frame.split(" ").map(Number);
      const box = picture.viewBox.baseVal, x = (k) => left + (most > 1 ? Math.log2(k) / Math.log2(most) : 0.5) * (box.width - left - right);
      const y = (v) => top + ((hi - v / 1e4) / (hi - lo)) * (box.height - top - bottom);
      names.forEach((name, at) => {
        const points = curves[figure.dataset.family][board().models.indexOf(name)] || [];
        if (!points.length) return;
        const group = draw("g", { class: `c${4 + (at % 4)}` }), path = (i, list) => list.map((p) => `${x(p[0]).toFixed(1)} ${y(p[i]).toFixed(1)}`).join("L");
        group.append(draw("path", { class: "band", d: `M${path(3, points)}L${path(2, [...points].reverse())}Z` }));
        const whole = points.filter((p) => p[4]), partly = points.slice(Math.max(whole.length - 1, 0));
        if (whole.length) group.append(draw("path", { class: "line", d: `M${path(1, whole)}` }));
        if (partly.length > 1) group.append(draw("path", { class: "line dashed", d: `M${path(1, partly)}` }));
        const last = points[points.length - 1], text = draw("text", { class: `c${4 + (at % 4)} name`, x: x(last[0]) + (right > 60 ? 9 : -6), y: y(last[1]) + (right > 60 ? 4 : -8), "text-anchor": right > 60 ? "start" : "end" });
        text.textContent = name.length > 16 ? `${name.slice(0, 15)}\u2026` : name;
        group.append(text);
        layer.append(group);
      });
    }
  };

  // --- problems where two pinned models differ -------------------------------------------------------------------
  const count = (cells, kind, model, at) => cells[kind][model].charCodeAt(at) - FIRST;
  const differ = () => {
    const box = place().querySelector(".differ"), cells = board().problems;
    if (!box || !cells) return;
    const at = state.pins.map((name) => board().models.indexOf(name)).filter((i) => i >= 0 && i < cells.n.length).slice(0, 2);
    box.hidden = at.length < 2;
    box.replaceChildren();
    if (at.length < 2) return;
    const found = cells.problems.map((name, i) => {
      const [a, b] = at.map((m) => (count(cells, "n", m, i) > 0 ? count(cells, "c", m, i) / count(cells, "n", m, i) : null));
      return { name, i, gap: a === null || b === null ? 0 : a - b };
    }).filter((p) => p.gap !== 0).sort((p, q) => Math.abs(q.gap) - Math.abs(p.gap)).slice(0, 10);
    const table = make("table", { class: "grid" }), head = make("tr"), body = make("tbody");
    table.append(make("caption", {}, "Problems where the two pinned models differ most"));
    ["Problem", ...at.map((m) => board().models[m])].forEach((text) => head.append(make("th", { scope: "col" }, text)));
    for (const p of found) {
      const tr = make("tr");
      tr.append(make("th", { scope: "row" }, p.name), ...at.map((m) => make("td", {}, `${count(cells, "c", m, p.i)} of ${count(cells, "n", m, p.i)}`)));
      body.append(tr);
    }
    const top = make("thead");
    top.append(head);
    table.append(top, body);
    box.append(table);
  };

  // --- state: in the address, so that a view can be linked --------------------------------------------------------
  const remember = () => {
    const told = new URLSearchParams();
    if (state.board) told.set("board", state.board);
    if (state.metric !== data.metric) told.set("metric", state.metric);
    if (state.search) told.set("search", state.search);
    if (state.sort) told.set("sort", state.sort);
    if (state.zoom) told.set("axis", "full");
    if (state.all) told.set("all", "1");
    state.pins.forEach((name) => told.append("pin", name));
    const text = told.toString();
    try { history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search); } catch { /* some viewers allow no address */ }
  };
  const recall = () => {
    const told = new URLSearchParams(location.hash.slice(1)), at = Number(told.get("board"));
    state.board = data.boards[at] ? at : 0;
    state.metric = board().metrics[told.get("metric")] ? told.get("metric") : board().metrics[data.metric] ? data.metric : Object.keys(board().metrics)[0];
    state.search = told.get("search") || "";
    state.sort = told.get("sort") || "";
    state.zoom = told.get("axis") === "full";
    state.all = told.get("all") === "1";
    state.pins = told.getAll("pin").filter((name) => board().models.includes(name)).slice(0, MOST_PINS);
  };

  // --- controls ---------------------------------------------------------------------------------------------------
  const ks = (family) => Object.entries(board().metrics).filter(([, m]) => m.family === family).sort(([, a], [, b]) => (a.k || 0) - (b.k || 0)).map(([name]) => name);
  const families = () => [...new Set(Object.values(board().metrics).map((m) => m.family))];
  const controls = () => {
    const chosen = $("family");
    chosen.replaceChildren(...families().map((name) => make("option", { value: name }, name)));
    chosen.value = metric().family;
    const names = ks(metric().family);
    $("pick-k").hidden = names.length < 2;
    $("k").max = names.length - 1;
    $("k").value = names.indexOf(state.metric);
    $("k-now").textContent = metric().k ?? "";
    $("k").setAttribute("aria-valuetext", state.metric);
    $("search").value = state.search;
    $("pick-search").hidden = board().models.length < 4;
    $("zoom").checked = state.zoom;
    $("board").value = String(state.board);
  };
  const show = (anew) => {
    boards.forEach((node, i) => { node.hidden = i !== state.board; });
    if (anew) fill();
    order();
    sift();
    overlay(state.pins);
    differ();
    controls();
    remember();
  };
  const change = (values, anew) => { Object.assign(state, values); show(anew); };

  const prepare = () => {
    $("board").append(...data.boards.map((b, i) => make("option", { value: i }, b.title)));
    $("pick-board").hidden = data.boards.length < 2;
    $("board").addEventListener("change", (e) => { const at = Number(e.target.value), has = data.boards[at].metrics; change({ board: at, pins: [], metric: has[state.metric] ? state.metric : has[data.metric] ? data.metric : Object.keys(has)[0] }, true); });
    $("family").addEventListener("change", (e) => {
      const names = ks(e.target.value), same = names.find((name) => board().metrics[name].k === metric().k);
      change({ metric: same || names[0] }, true);
    });
    $("k").addEventListener("input", (e) => change({ metric: ks(metric().family)[Number(e.target.value)] }, true));
    $("search").addEventListener("input", (e) => change({ search: e.target.value }));
    $("zoom").addEventListener("change", (e) => change({ zoom: e.target.checked }, true));
    $("controls").addEventListener("submit", (e) => e.preventDefault());
    $("controls").hidden = false;
    document.documentElement.classList.add("js");
    const dark = () => document.documentElement.classList.contains("dark") || (!document.documentElement.classList.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
    const named = () => { $("theme").textContent = dark() ? "Light" : "Dark"; };
    $("theme").addEventListener("click", () => { const now = dark(); document.documentElement.classList.remove("dark", "light"); document.documentElement.classList.add(now ? "light" : "dark"); named(); });
    named();
    addEventListener("hashchange", () => { recall(); show(true); });
    boards.forEach((node, at) => { enhance(node, data.boards[at]); duel(node); heat(node, data.boards[at]); });
  };
  const enhance = (node, its) => {
    for (const th of all(node, ".scores thead th[data-key]")) {
      const button = make("button", { type: "button" });
      button.append(...th.childNodes);
      th.append(button);
      button.addEventListener("click", () => { const key = th.dataset.key; change({ sort: state.sort === key ? `${key}-down` : state.sort === `${key}-down` ? "" : key }); });
    }
    for (const tr of rows(node)) {
      const name = its.models[Number(tr.dataset.i)];
      tr.addEventListener("pointerenter", (e) => { if (e.pointerType === "mouse") overlay([...new Set([...state.pins, name])]); });
      tr.addEventListener("pointerleave", (e) => { if (e.pointerType === "mouse") overlay(state.pins); });
    }
    node.querySelector(".more .all").addEventListener("click", () => change({ all: !state.all }));
    node.querySelector(".save-csv").addEventListener("click", () => save(node));
    node.querySelector(".copy-md").addEventListener("click", (e) => copy(node, e.target));
  };

  // --- the visible table as text -----------------------------------------------------------------------------------
  const visible = (node) => rows(node).filter((tr) => !tr.hidden).map((tr) => [rank(row_of(tr)), name_of(tr), tr.querySelector(".score").textContent, tr.querySelector(".range").textContent]);
  const HEAD = () => ["rank", "model", state.metric + (metric().percent ? " (%)" : ""), "interval"];
  const save = (node) => {
    const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replace(/"/g, '""')}"`;
    const text = [HEAD(), ...visible(node)].map((row) => row.map(cell).join(",")).join("\n");
    const link = make("a", { download: "leaderboard.csv" });
    link.href = URL.createObjectURL(new Blob(["\ufeff", text, "\n"], { type: "text/csv" }));
    link.click();
  };
  const copy = async (node, button) => {
    const cell = (text) => text.replace(/([\\|`*_[\]<>])/g, "\\$1");
    const lines = [HEAD(), ["--:", "---", "--:", "---"], ...visible(node).map((row) => row.map(cell))].map((row) => `| ${row.join(" | ")} |`);
    const text = lines.join("\n"), area = make("textarea", { "aria-label": "Markdown" }, text);
    button.after(area);
    area.select();
    try { await navigator.clipboard.writeText(text); area.remove(); button.textContent = "Copied"; } catch { button.textContent = "Copy from here"; }
  };

  // --- who beats whom: a cell tells its comparison, by mouse, tap or arrow keys ------------------------------------
  const duel = (node) => {
    const table = node.querySelector(".duel");
    if (!table) return;
    const told = node.querySelector(".pairs .told"), cells = all(table, "tbody td:not(.self)");
    const choose = (td, focus) => {
      cells.forEach((each) => { each.classList.toggle("chosen", each === td); each.tabIndex = each === td ? 0 : -1; });
      told.textContent = td.title;
      if (focus) td.focus();
    };
    cells.forEach((td) => { td.tabIndex = -1; });
    if (cells.length) cells[0].tabIndex = 0;
    table.addEventListener("click", (e) => { const td = e.target.closest("tbody td:not(.self)"); if (td) choose(td); });
    table.addEventListener("focusin", (e) => { const td = e.target.closest("tbody td:not(.self)"); if (td) choose(td); });
    table.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key], td = e.target.closest("tbody td");
      if (!step || !td) return;
      e.preventDefault();
      let x = td.cellIndex + step[0], y = td.parentNode.sectionRowIndex + step[1];
      const body = td.closest("tbody");
      if (body.rows[y] && body.rows[y].cells[x] && body.rows[y].cells[x].classList.contains("self")) { x += step[0]; y += step[1]; }
      const next = body.rows[y] && body.rows[y].cells[x];
      if (next && next.tagName === "TD" && !next.classList.contains("self")) choose(next, true);
    });
  };

  // --- who solves which problem ------------------------------------------------------------------------------------
  const heat = (node, its) => {
    const picture = node.querySelector("svg.heat");
    if (!picture || !its.problems) return;
    const told = node.querySelector(".problems .told"), cells = its.problems, wide = cells.problems.length, high = cells.n.length;
    const cursor = draw("rect", { class: "cursor", width: 1, height: 1, x: -2, y: 0 });
    picture.append(cursor);
    let at = [0, 0];
    const tell = (x, y) => {
      at = [Math.min(Math.max(x, 0), wide - 1), Math.min(Math.max(y, 0), high - 1)];
      cursor.setAttribute("x", at[0]);
      cursor.setAttribute("y", at[1]);
      const n = count(cells, "n", at[1], at[0]), c = count(cells, "c", at[1], at[0]);
      told.textContent = `${its.models[at[1]]}, ${cells.problems[at[0]]}: ${n > 0 ? (n === 80 ? `about ${Math.round((c / n) * 100)}%` : `${c} of ${n}`) : "not attempted"}`;
    };
    const pointed = (e) => { const box = picture.getBoundingClientRect(); tell(Math.floor(((e.clientX - box.left) / box.width) * wide), Math.floor(((e.clientY - box.top) / box.height) * high)); };
    picture.addEventListener("pointermove", pointed);
    picture.addEventListener("click", pointed);
    picture.addEventListener("focus", () => tell(...at));
    picture.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
      if (step) { e.preventDefault(); tell(at[0] + step[0], at[1] + step[1]); }
    });
  };

  recall();
  prepare();
  show(location.hash.length > 1 || state.metric !== data.metric);
})();
