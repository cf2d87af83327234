// Charts and tables below the leaderboard, which follow the pins and the metric.
const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const colour = (at) => `c${4 + (at % MAX_PINS)}`;
const shape = (at, points) => draw("path", { class: "mark", d: points.map(([x, y]) => `M${x} ${y}${data.markers[at % data.markers.length]}`).join("") });
const pathOf = (points) => `M${points.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join("L")}`;
const legend = (list, names) => {
  all(list, ".pinned").forEach((li) => li.remove());
  names.forEach((name, at) => {
    const li = make("li", { class: "pinned" }), key = draw("svg", { class: `key ${colour(at)}`, viewBox: "0 0 14 14", "aria-hidden": "true" });
    key.append(shape(3 + at, [[7, 7]]));
    li.append(key, make("bdi", {}, name));
    list.append(li);
  });
};

// --- pinned models, and the one under the pointer, in every chart that has data of all models -------------------------
const frameOf = (picture) => {
  const [left, right, top, bottom, x0, x1, y0, y1, log, percent] = picture.dataset.frame.split(" ").map(Number), box = picture.viewBox.baseVal;
  const along = (x) => (x1 > x0 ? (log ? Math.log(x / x0) / Math.log(x1 / x0) : (x - x0) / (x1 - x0)) : 0.5);
  return {
    x: (value) => left + along(value) * (box.width - left - right),
    y: (value) => top + ((y1 - value / (percent ? 1e4 : 1)) / (y1 - y0)) * (box.height - top - bottom),
    wide: right > 60, top, bottom: box.height - bottom,
  };
};
const drawPins = (names) => {
  for (const picture of all(boardNode(), "svg[data-source]")) {
    const source = picture.dataset.source, { x, y, wide } = frameOf(picture);
    picture.querySelector(".pins").replaceChildren(...names.flatMap((name, at) => {
      const points = board().points[source][board().models.indexOf(name)] || [];
      if (!points.length) return [];
      const group = draw("g", { class: colour(at) }), ends = (i, list) => list.map((p) => [x(p[0]), y(p[i])]);
      const full = points.filter((p) => p[4] === 2), partial = points.slice(Math.max(full.length - 1, 0));
      group.append(draw("path", { class: "band", d: `${pathOf([...ends(3, points), ...ends(2, [...points].reverse())])}Z` }));
      if (full.length) group.append(draw("path", { class: "line", d: pathOf(ends(1, full)) }));
      if (partial.length > 1) group.append(draw("path", { class: "line dashed", d: pathOf(ends(1, partial)) }));
      group.append(shape(3 + at, ends(1, points).map((p) => p.map((v) => v.toFixed(1)))));
      const [ex, ey] = ends(1, points.slice(-1))[0];
      if (wide) group.append(draw("text", { class: "name", x: ex + 9, y: ey + 4 }, shorten(name.split("/").pop(), 15)));
      return [group];
    }));
  }
  for (const section of all(boardNode(), "section:has(svg[data-source])")) legend(section.querySelector(".legend"), names);
};

// --- values at one place of a chart, by slider, arrow keys, click or tap: the rows of the table below it --------------
const attachSlider = (figure) => {
  const rows = all(figure, "tr[data-x]"), pictures = all(figure, "svg.chart");
  if (rows.length < 2) return;
  const heads = [...rows[0].closest("table").tHead.rows[0].cells].map((th) => th.textContent);
  const slider = make("input", { type: "range", min: 0, max: rows.length - 1, value: rows.length - 1, "aria-label": `${heads[0]}: ${figure.querySelector("figcaption").textContent}` });
  const readout = make("p", { class: "readout", "aria-live": "polite" }), place = make("p", { class: "slider" });
  const show = () => {
    const row = rows[slider.value], cells = [...row.cells].map((cell) => cell.textContent);
    slider.setAttribute("aria-valuetext", `${heads[0]} ${cells[0]}`);
    readout.replaceChildren(make("strong", {}, `${heads[0]} ${cells[0]}`), ...cells.slice(1).filter((text) => text).map((text, i) => make("span", {}, `${heads[i + 1]}: ${text}`)));
    for (const picture of pictures) {
      const { x, top, bottom } = frameOf(picture), line = picture.querySelector(".at") || picture.appendChild(draw("path", { class: "at" }));
      line.setAttribute("d", `M${x(Number(row.dataset.x)).toFixed(1)} ${top}V${bottom}`);
    }
  };
  slider.addEventListener("input", show);
  for (const picture of pictures) picture.addEventListener("click", (e) => {
    const box = picture.getBoundingClientRect(), { x } = frameOf(picture), clicked = ((e.clientX - box.left) / box.width) * picture.viewBox.baseVal.width;
    const away = rows.map((row) => Math.abs(x(Number(row.dataset.x)) - clicked));
    slider.value = away.indexOf(Math.min(...away));
    show();
  });
  place.append(slider);
  pictures[pictures.length - 1].after(place, readout);
};

// --- pairwise comparisons: the first models and the pinned ones, at the current metric -----------------------------
const ranked = (m) => [...board().models.keys()].filter((i) => m.rows[i] && m.rows[i][3]).sort((a, b) => m.rows[a][3] - m.rows[b][3]);
const pair = (its, a, b) => {
  const [i, j] = a < b ? [a, b] : [b, a], at = (i * (2 * board().models.length - i - 1)) / 2 + (j - i - 1), sign = a < b ? 1 : -1;
  const claim = its.claim[at], [x, y, z] = [its.lift[at], its.lo[at], its.hi[at]];
  return { lift: sign * x, lo: sign * (sign > 0 ? y : z), hi: sign * (sign > 0 ? z : y), compared: claim !== "?", significant: claim === "+" || claim === "-" };
};
const pairCell = (its, m, a, b, most) => {
  const p = pair(its, a, b), names = `${board().models[a]} vs. ${board().models[b]}`;
  if (!p.compared) return make("td", { class: "p0 equal", title: `${names}: not compared` }, DASH);
  const step = p.significant ? Math.round((4 * p.lift) / most) : 0, about = `${names}: ${signed(m, p.lift)} points (${signed(m, p.lo)} to ${signed(m, p.hi)}): ${p.significant ? "significant" : "not significant"}`;
  return make("td", { class: `${step < 0 ? "n" : "p"}${Math.min(Math.abs(step), 4)}${p.significant ? "" : " equal"}`, title: about }, p.significant ? signed(m, p.lift) : "=");
};
const drawPairs = () => {
  const section = boardNode().querySelector(".pairs");
  if (!section) return;
  const table = section.querySelector(".pair-matrix"), m = board().overall.metrics[state.metric], its = board().pairs[state.metric], compared = Boolean(m && its);
  section.original = section.original || [...table.tHead.rows, ...table.tBodies[0].rows];  // as the server wrote them
  const first = compared ? ranked(m).slice(0, data.matrix) : [], pinned = state.pins.map((name) => board().models.indexOf(name));
  const refill = compared && (state.metric !== defaultMetric() || pinned.some((i) => !first.includes(i)));
  section.querySelector(".missing-metric").hidden = compared || state.metric === defaultMetric();
  section.querySelector(".selected-metric").textContent = state.metric;
  all(section, ".metric").forEach((node) => { node.textContent = refill ? state.metric : defaultMetric(); });
  section.querySelector(".significant-count").hidden = refill;
  const [head, ...body] = section.original;
  if (!refill) { table.tHead.replaceChildren(head); table.tBodies[0].replaceChildren(...body); setTabStops(table); return; }
  const shown = [...new Set([...first, ...pinned])], half = board().models.length > data.many, lifts = first.flatMap((a) => first.filter((b) => b !== a).map((b) => Math.abs(pair(its, a, b).lift)));
  const top = make("tr"), most = Math.max(...lifts, 0) || 1;
  top.append(make("th", { scope: "col" }, "Model"), ...shown.map((i) => { const th = make("th", { scope: "col" }); th.append(make("bdi", {}, shorten(board().models[i], 24))); return th; }));
  table.tHead.replaceChildren(top);
  table.tBodies[0].replaceChildren(...shown.map((a, y) => {
    const tr = make("tr"), th = make("th", { scope: "row" });
    th.append(make("bdi", {}, shorten(board().models[a], 60)));
    tr.append(th, ...shown.slice(0, half ? y + 1 : shown.length).map((b, x) => (x === y ? make("td", { class: "self" }) : pairCell(its, m, a, b, most))));
    return tr;
  }));
  setTabStops(table);
};
// Mouse, tap or arrow keys show the comparison of a cell; the tab key reaches one cell.
const setTabStops = (table) => {
  const cells = all(table, "tbody td:not(.self)");
  cells.forEach((td, i) => { td.tabIndex = i ? -1 : 0; td.classList.remove("chosen"); });
};
const attachPairMatrix = (node) => {
  const table = node.querySelector(".pair-matrix");
  if (!table) return;
  const readout = node.querySelector(".pairs .readout");
  const choose = (td, focus) => {
    all(table, "td.chosen, td[tabindex='0']").forEach((each) => { each.classList.remove("chosen"); each.tabIndex = -1; });
    td.classList.add("chosen");
    td.tabIndex = 0;
    readout.textContent = td.title;
    if (focus) td.focus();
  };
  const inside = (e) => e.target.closest("tbody td:not(.self)");
  for (const what of ["click", "focusin"]) table.addEventListener(what, (e) => { if (inside(e)) choose(inside(e)); });
  table.addEventListener("keydown", (e) => {
    const step = STEPS[e.key], td = inside(e);
    if (!step || !td) return;
    e.preventDefault();
    const lists = td.closest("tbody").rows;
    let x = td.cellIndex, y = td.parentNode.sectionRowIndex;
    for (let tries = 0; tries < 2; tries += 1) {  // skip the diagonal
      x += step[0];
      y += step[1];
      const next = lists[y] && lists[y].cells[x];
      if (next && next.tagName === "TD" && !next.classList.contains("self")) { choose(next, true); return; }
    }
  });
};

// --- scores by subject at the current metric ----------------------------------------------------------------------
const drawSubjects = () => {
  const table = boardNode().querySelector(".by-subject"), subjects = board().subjects;
  if (!table || !subjects.length) return;
  const shown = subjects.every((its) => Object.hasOwn(its.metrics, state.metric)) ? state.metric : defaultMetric();
  if (table.dataset.shown === shown || (!table.dataset.shown && shown === defaultMetric())) return;
  table.dataset.shown = shown;
  table.querySelector(".metric").textContent = shown;
  all(table, "tbody tr").forEach((tr) => all(tr, "td").forEach((td, j) => {
    const m = subjects[j].metrics[shown], row = m.rows[Number(tr.dataset.i)] || NO_ROW;
    td.className = td.className.replace(/h\d/, row[0] === null || !m.percent ? "" : `h${Math.min(Math.floor(row[0] / 2e5), 4)}`);
    td.title = row[0] === null ? "" : both(m, row[0], row[1], row[2]);
    td.replaceChildren(row[5] === 1 ? make("strong", {}, number(m, row[0])) : number(m, row[0]));
  }));
};

// --- models by problems -------------------------------------------------------------------------------------------
const counted = (its, model, at) => its.codes[its.cells[model][at]] || [0, 0];
const solved = (its, model, at) => {
  const [n, c] = counted(its, model, at);
  return n ? (n === 100 && its.rounded ? `about ${c}%` : `${c} of ${n}`) : "not attempted";
};
const heatMapModels = () => {
  const its = board().problems, first = [...Array(its.drawn).keys()];
  return [...first, ...state.pins.map((name) => board().models.indexOf(name)).filter((i) => i >= its.drawn && i < its.cells.length)];
};
const drawHeatMap = () => {
  const picture = boardNode().querySelector("svg.heat"), its = board().problems;
  if (!picture) return;
  const shown = heatMapModels(), names = boardNode().querySelector(".matrix .rows"), paths = ["", "", "", "", ""];
  if ((picture.dataset.rows || String([...Array(its.drawn).keys()])) === String(shown)) return;
  shown.forEach((model, y) => its.names.forEach((_, x) => {
    const [n, c] = counted(its, model, x);
    if (n) paths[c === 0 ? 0 : c === n ? 4 : 1 + Math.min(Math.floor((3 * c) / n), 2)] += `M${x} ${y}.5h1`;
  }));
  picture.dataset.rows = shown;
  picture.setAttribute("viewBox", `0 0 ${its.names.length} ${shown.length}`);
  all(picture, "path").forEach((path) => path.remove());
  picture.querySelector(".cursor").before(...paths.map((d, step) => draw("path", { class: `s${step}`, d })));
  all(names, ".pinned").forEach((li) => li.remove());
  shown.slice(its.drawn).forEach((i) => { const li = make("li", { class: "pinned" }); li.append(make("bdi", {}, shorten(board().models[i], phone.matches ? 14 : 28))); names.append(li); });
};
const attachHeatMap = (node, its) => {
  const picture = node.querySelector("svg.heat");
  if (!picture) return;
  const readout = node.querySelector(".problems .readout"), cursor = draw("rect", { class: "cursor", width: 1, height: 1, x: -2, y: 0 });
  picture.append(cursor);
  let at = [0, 0];
  const describe = (x, y) => {
    const shown = heatMapModels(), inside = (value, many) => Math.min(Math.max(value, 0), many - 1);
    at = [inside(x, its.names.length), inside(y, shown.length)];
    cursor.setAttribute("x", at[0]);
    cursor.setAttribute("y", at[1]);
    readout.textContent = `${board().models[shown[at[1]]]}, ${its.names[at[0]]}: ${solved(its, shown[at[1]], at[0])}`;
  };
  const pointed = (e) => {
    const box = picture.getBoundingClientRect(), part = (value, from, size, many) => Math.floor(((value - from) / size) * many);
    describe(part(e.clientX, box.left, box.width, its.names.length), part(e.clientY, box.top, box.height, heatMapModels().length));
  };
  for (const what of ["pointermove", "click"]) picture.addEventListener(what, pointed);
  picture.addEventListener("focus", () => describe(...at));
  picture.addEventListener("keydown", (e) => { if (STEPS[e.key]) { e.preventDefault(); describe(at[0] + STEPS[e.key][0], at[1] + STEPS[e.key][1]); } });
};
const drawDifferences = () => {
  const box = boardNode().querySelector(".differences"), its = board().problems;
  if (!box) return;
  const at = state.pins.map((name) => board().models.indexOf(name)).filter((i) => i < its.cells.length).slice(0, 2);
  box.hidden = at.length < 2;
  box.replaceChildren();
  if (box.hidden) return;
  const largest = its.names.map((name, i) => {
    const [[n, c], [o, d]] = at.map((m) => counted(its, m, i));
    return { name, i, gap: n && o ? c / n - d / o : 0 };
  }).filter((p) => p.gap !== 0).sort((p, q) => Math.abs(q.gap) - Math.abs(p.gap)).slice(0, 10);
  const table = make("table", { class: "grid" }), head = make("tr"), top = make("thead"), body = make("tbody");
  table.append(make("caption", {}, largest.length ? "Problems where the two pinned models differ most" : "The two pinned models solve the same problems equally often"), top, body);
  ["Problem", ...at.map((m) => board().models[m])].forEach((text) => head.append(make("th", { scope: "col" }, text)));
  top.append(head);
  for (const p of largest) {
    const tr = make("tr");
    tr.append(make("th", { scope: "row" }, p.name), ...at.map((m) => make("td", {}, solved(its, m, p.i))));
    body.append(tr);
  }
  box.append(table);
};
