// Controls, and the first rendering.
const ks = (family) => Object.entries(view().metrics).filter(([, m]) => m.family === family).sort(([, a], [, b]) => (a.k || 0) - (b.k || 0)).map(([name]) => name);
const options = (id, names, chosen, texts) => {
  $(id).replaceChildren(...names.map((name, i) => make("option", { value: name }, texts ? texts[i] : name)));
  $(id).value = chosen;
  $(`pick-${id}`).hidden = names.length < 2;
};
const controls = () => {
  const protocols = data.boards.filter((b) => b.benchmark === board().benchmark), subjects = board().subjects.map((its) => its.name), names = ks(metric().family);
  options("benchmark", [...new Set(data.boards.map((b) => b.benchmark))], board().benchmark);
  options("protocol", protocols.map((b) => b.protocol), board().protocol, protocols.map((b) => b.protocol || "none"));
  options("subject", ["", ...subjects], state.subject, ["all", ...subjects]);
  $("pick-subject").hidden = !subjects.length;
  options("family", [...new Set(Object.values(view().metrics).map((m) => m.family))], metric().family);
  $("pick-k").hidden = names.length < 2;
  $("k").max = names.length - 1;
  $("k").value = names.indexOf(state.metric);
  $("k-now").textContent = metric().k ?? "";
  $("k").setAttribute("aria-valuetext", state.metric);
  $("search").value = state.search;
  $("pick-search").hidden = board().models.length < 4;
  $("pick-group").hidden = !groups();
  $("group").checked = state.group;
  $("zoom").checked = state.zoom;
  all(boardNode(), ".scope").forEach((node) => { node.hidden = !state.subject; });
};
const render = (refill) => {
  $("boards").replaceChildren(boardNode());
  if (refill) fillTable();
  sortRows();
  filterRows();
  drawPins(state.pins);
  drawPairs();
  drawSubjects();
  if (board().problems) { drawHeatMap(); drawDifferences(); }
  controls();
  saveState();
};
const update = (values, refill) => { Object.assign(state, values); normalize(); render(refill); };

const selectBoard = (benchmark, protocol) => {
  const same = data.boards.findIndex((b) => b.benchmark === benchmark && b.protocol === protocol);
  update({ board: same < 0 ? data.boards.findIndex((b) => b.benchmark === benchmark) : same }, true);
};
const bindControls = () => {
  const on = (id, event, handler) => $(id).addEventListener(event, (e) => handler(e.target));
  on("benchmark", "change", (e) => selectBoard(e.value, board().protocol));
  on("protocol", "change", (e) => selectBoard(board().benchmark, e.value));
  on("subject", "change", (e) => update({ subject: e.value }, true));
  on("family", "change", (e) => { const names = ks(e.value); update({ metric: names.find((name) => view().metrics[name].k === metric().k) || names[0] }, true); });
  on("k", "input", (e) => update({ metric: ks(metric().family)[Number(e.value)] }, true));
  on("search", "input", (e) => update({ search: e.value }));
  on("group", "change", (e) => update({ group: e.checked }));
  on("zoom", "change", (e) => update({ zoom: e.checked }));
  document.querySelector("#controls form").addEventListener("submit", (e) => e.preventDefault());
  addEventListener("hashchange", () => { loadState(); render(true); });
};
const bindTheme = () => {
  const root = document.documentElement.classList, dark = () => root.contains("dark") || (!root.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  const named = () => { $("theme").textContent = dark() ? "Light" : "Dark"; };
  $("theme").addEventListener("click", () => { const now = dark(); root.remove("dark", "light"); root.add(now ? "light" : "dark"); named(); });
  named();
};
const bindPrint = () => {  // all boards, all rows, everything unfolded
  let closed = [];
  const print = (now) => {
    closed.forEach((node) => { node.open = false; });
    closed = [];
    if (!now) { render(); return; }
    $("boards").replaceChildren(...boards);
    boards.forEach((node) => rows(node).forEach((tr) => tr.home.append(tr)));
    closed = all(document, "details:not([open])");
    closed.forEach((node) => { node.open = true; });
  };
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
  paper.addEventListener("change", () => print(paper.matches));
  if (paper.matches) print(true);
};
const enhance = (node, its) => {
  for (const th of all(node, ".scores thead th[data-key]")) {
    const button = make("button", { type: "button" }), key = th.dataset.key;
    button.append(...th.childNodes);
    th.append(button);
    button.addEventListener("click", () => update({ sort: state.sort === key ? `${key}-down` : state.sort === `${key}-down` ? "" : key }));
  }
  for (const tr of rows(node)) {
    tr.home = tr.parentNode;
    const name = its.models[Number(tr.dataset.i)], mouse = (e) => e.pointerType === "mouse";
    tr.addEventListener("pointerenter", (e) => { if (mouse(e)) drawPins([...new Set([...state.pins, name])]); });
    tr.addEventListener("pointerleave", (e) => { if (mouse(e)) drawPins(state.pins); });
    tr.addEventListener("click", (e) => { if (phone.matches && !e.target.closest("button")) pin(name); });
  }
  node.querySelector(".more .all").addEventListener("click", () => update({ all: !state.all }));
  node.querySelector(".save-csv").addEventListener("click", () => saveCsv(node));
  node.querySelector(".copy-md").addEventListener("click", (e) => copyMarkdown(node, e.target));
  attachPairMatrix(node);
  all(node, "figure").forEach(attachSlider);
  if (its.problems) attachHeatMap(node, its.problems);
};

for (const link of all(document, ".overall a")) link.addEventListener("click", (e) => {
  const b = data.boards[Number(link.hash.slice(2))];
  e.preventDefault();  // the part after # is the state
  selectBoard(b.benchmark, b.protocol);
  boardNode().scrollIntoView();
});
boards.forEach((node, i) => enhance(node, data.boards[i]));
for (const [names, max] of [[".overall th.name bdi", 20], [".matrix .rows bdi", 14]]) for (const bdi of all(document, names)) {
  showName(bdi, false, max);
  bdi.addEventListener("click", () => showName(bdi, bdi.firstChild !== bdi.parts[0], max));
}
bindControls();
bindTheme();
$("omitted").hidden = !data.omitted.length;
$("omitted").textContent = `Omitted to keep the page small: ${data.omitted.join("; ")}. leaderboard.duckdb has all of it.`;
$("controls").hidden = false;
for (const id of ["controls", "intro", "notes"]) if ($(id)) $(id).open = !phone.matches;
document.documentElement.classList.add("js");
loadState();
render(location.hash.length > 1);
bindPrint();
