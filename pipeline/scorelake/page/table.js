// The leaderboard: filled for a metric or subject, sorted, searched, grouped, pinned, and saved as text.
// Rows that are not shown are taken out of the page, which stays light however many models there are; paper gets all.
const kept = new Map(boards.map((node) => [node, all(node, ".scores tbody tr")]));
const rows = (node) => kept.get(node);
const paper = matchMedia("print");
const NONE = [null, null, null, null, null, null, 0];
const row_of = (tr) => metric().rows[Number(tr.dataset.i)] || NONE;
const name_of = (tr) => board().models[Number(tr.dataset.i)];
const counts_of = (tr) => view().counts[Number(tr.dataset.i)] || [0, 0, 0];
const rank = (row) => (row[3] === null ? DASH : row[4] === null || row[4] === row[5] ? String(row[3]) : `${row[4]}\u2013${row[5]}`);

// --- dots and intervals on one axis -------------------------------------------------------------------------------
const axis = (m, shown) => {
  if (state.zoom && m.percent) return [0, 1];
  const ends = shown.flatMap((tr) => row_of(tr).slice(0, 3)).filter((x) => x !== null), unit = m.percent ? 1e6 : 1;
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
  place().querySelector(".ticks").replaceChildren(...marks(ends).map((t) => draw("text", {
    x: `${share(t, ends)}%`, y: 12, "text-anchor": t <= ends[0] ? "start" : t >= ends[1] ? "end" : "middle",
  }, String(Math.round(t * (m.percent ? 100 : 1) * 1e6) / 1e6))));
};

// --- every row for the metric and the subject ---------------------------------------------------------------------
const fill = () => {
  const m = metric(), where = place(), table = where.querySelector(".scores"), initial = state.metric === asked() && !state.subject;
  all(where, "h2 .metric, caption .metric").forEach((node) => { node.textContent = state.metric + (state.subject ? ` in ${state.subject}` : ""); });
  where.querySelector(".verdict").textContent = m.verdict;
  where.querySelector(".unit").textContent = m.percent ? ", %" : "";
  const ranked = table.querySelector(".ranked");
  let below = table.querySelector(".below"), star = false;
  if (!below) { below = make("tbody", { class: "below", role: "rowgroup" }); table.append(below); }
  for (const tr of rows(where)) {
    const row = row_of(tr), [tried, of, attempts] = counts_of(tr), cell = (name) => tr.querySelector(`.${name}`);
    if (cell("place")) cell("place").textContent = rank(row);
    cell("score").textContent = number(m, row[0]) + (row[0] !== null && row[6] ? "*" : "");
    star = star || (row[0] !== null && row[6] === 1);
    cell("range").textContent = range(m, row[1], row[2]);
    cell("problems").textContent = `${thousands(tried)} of ${thousands(of)}`;
    cell("attempts").textContent = thousands(attempts);
    cell("attempts").title = `${(attempts / (tried || 1)).toFixed(1)} per problem`;
    if (cell("change")) cell("change").classList.toggle("quiet", !initial);
    if (cell("flags")) cell("flags").hidden = !initial;
    const reason = row[3] === null ? m.reasons[tr.dataset.i] || (tried ? "" : "attempted none of these problems") : "";
    let note = cell("reason");
    if (reason && !note) { note = make("span", { class: "reason" }); cell("model").append(note); }
    if (note) { note.textContent = reason ? `Not ranked: ${reason}` : ""; note.hidden = !reason; }
    tr.home = row[3] === null ? below : ranked;
  }
  where.querySelector(".star").hidden = !star;
};

// --- order, groups, search ----------------------------------------------------------------------------------------
const KEYS = {
  place: (tr) => row_of(tr)[3] ?? Infinity,
  name: (tr) => name_of(tr).toLowerCase(),
  score: (tr) => -(row_of(tr)[0] ?? -Infinity),
  lo: (tr) => -(row_of(tr)[1] ?? -Infinity),
  problems: (tr) => -counts_of(tr)[0],
  attempts: (tr) => -counts_of(tr)[2],
};
const by_place = (a, b) => (KEYS.place(a) - KEYS.place(b)) || (KEYS.score(a) - KEYS.score(b)) || (name_of(a) < name_of(b) ? -1 : 1);
const order = () => {
  const [key, down] = state.sort.split("-"), sort = Object.hasOwn(KEYS, key) ? KEYS[key] : KEYS.place;
  const first = new Map();  // the best place of every group
  for (const tr of state.group ? [...rows(place())].sort(by_place) : []) if (!first.has(group_of(name_of(tr)))) first.set(group_of(name_of(tr)), first.size);
  const compare = (a, b) => {
    const together = state.group ? first.get(group_of(name_of(a))) - first.get(group_of(name_of(b))) : 0;
    const [x, y] = [sort(a), sort(b)], way = x < y ? -1 : x > y ? 1 : 0;
    return together || (down ? -way : way) || by_place(a, b);
  };
  rows(place()).sort((a, b) => (KEYS.place(a) === Infinity) - (KEYS.place(b) === Infinity) || compare(a, b));
  for (const th of all(place(), ".scores thead th[data-key]")) {
    if (th.dataset.key === key) th.setAttribute("aria-sort", down ? "descending" : "ascending"); else th.removeAttribute("aria-sort");
  }
};
const bands = (shown) => {
  let first = null, tier = -1;
  const tiers = shown.map((tr) => {
    const row = row_of(tr);
    if (first === null || row[4] === null || row[4] > first) { first = row[3]; tier += 1; }
    return tier;
  });
  shown.forEach((tr, i) => {
    const [before, after] = [tiers[i - 1] === tiers[i], tiers[i + 1] === tiers[i]];
    tr.className = `t${tiers[i] % 2}${before || after ? " joined" : ""}${after && !before ? " first" : ""}${before && !after ? " last" : ""}`;
  });
};
const headings = (shown) => {
  if (!state.group) return;
  const many = (list) => list.reduce((out, name) => out.set(group_of(name), (out.get(group_of(name)) || 0) + 1), new Map());
  const whole = many(board().models), here = many(shown.map(name_of)), wide = place().querySelectorAll(".scores thead th").length;
  let last = null;
  for (const tr of shown) {
    const group = group_of(name_of(tr));
    if (group === last || tr.home.className === "below") continue;
    const head = make("tr", { class: "group", role: "row" });
    head.append(make("th", { colspan: wide, scope: "rowgroup", role: "rowheader" }, `${group}: ${here.get(group)} of ${whole.get(group)}`));
    tr.before(head);
    last = group;
  }
};
const pin = (name) => change({ pins: state.pins.includes(name) ? state.pins.filter((p) => p !== name) : [...state.pins, name].slice(-MOST_PINS) });
const pin_button = (tr) => {
  const name = name_of(tr), button = make("button", { type: "button", class: "pin", title: "pin: draw and compare it" });
  button.setAttribute("aria-label", `Pin ${cut(name, 80)}`);
  button.addEventListener("click", () => pin(name));
  tr.querySelector(".model").prepend(button);
  return button;
};
const sift = () => {
  const words = state.search.toLowerCase().trim(), where = place(), m = metric();
  const matching = rows(where).filter((tr) => !words || name_of(tr).toLowerCase().includes(words));
  const first = state.group ? [...matching].sort(by_place) : matching;
  const some = new Set(state.all || words ? matching : first.slice(0, data.top));
  const shown = rows(where).filter((tr) => some.has(tr) || state.pins.includes(name_of(tr)));
  const ends = axis(m, shown), drawn = `${state.subject} ${state.metric} ${ends}`;
  if (where.dataset.drawn !== drawn) { rows(where).forEach((tr) => tr.querySelector(".plot").replaceChildren()); labels(m, ends); where.dataset.drawn = drawn; }
  for (const tr of shown) {
    const pinned = state.pins.includes(name_of(tr));
    tr.className = "t0";
    if (!tr.querySelector(".whisker")) whisker(tr.querySelector(".plot"), m, row_of(tr), ends);
    const button = tr.querySelector(".pin") || pin_button(tr);
    button.setAttribute("aria-pressed", String(pinned));
    button.textContent = pinned ? "\u25c6" : "\u25c7";
  }
  if (!state.group && (!state.sort || state.sort === "place")) bands(shown.filter((tr) => row_of(tr)[3] !== null));
  shown.forEach((tr) => tr.classList.toggle("pinned", state.pins.includes(name_of(tr))));
  for (const body of all(where, ".scores tbody")) {
    body.replaceChildren(...shown.filter((tr) => tr.home === body));
    body.hidden = !body.rows.length;
  }
  headings(shown);
  const button = where.querySelector(".more .all"), many = board().models.length;
  button.hidden = many <= data.top || words !== "";
  button.textContent = state.all ? `Show the first ${data.top}` : `Show all ${many}`;
  where.querySelector(".more").hidden = false;
  $("found").textContent = words ? `${matching.length} models match` : "";
};

// --- the visible table as text ------------------------------------------------------------------------------------
const visible = (node) => all(node, ".scores tbody tr[data-i]").map((tr) => [rank(row_of(tr)), name_of(tr), tr.querySelector(".score").textContent, tr.querySelector(".range").textContent]);
const HEAD = () => ["rank", "model", state.metric + (state.subject ? ` in ${state.subject}` : "") + (metric().percent ? " (%)" : ""), "interval"];
const save = (node) => {
  const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replace(/"/g, '""')}"`;
  const text = [HEAD(), ...visible(node)].map((row) => row.map(cell).join(",")).join("\n");
  const link = make("a", { download: "leaderboard.csv" });
  link.href = URL.createObjectURL(new Blob(["\ufeff", text, "\n"], { type: "text/csv" }));
  link.click();
};
const copy = async (node, button) => {
  const cell = (text) => text.replace(/([\\|`*_[\]<>])/g, "\\$1");
  const lines = [HEAD().map(cell), ["--:", "---", "--:", "---"], ...visible(node).map((row) => row.map(cell))].map((row) => `| ${row.join(" | ")} |`);
  const text = lines.join("\n"), area = make("textarea", { "aria-label": "Markdown", rows: 6 }, text);
  all(node, ".more textarea").forEach((old) => old.remove());
  button.after(area);
  area.select();
  try { await navigator.clipboard.writeText(text); area.remove(); button.textContent = "Copied"; } catch { button.textContent = "Copy from here"; }
};
