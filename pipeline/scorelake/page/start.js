// Controls, and the first picture.
const ks = (family) => Object.entries(view().metrics).filter(([, m]) => m.family === family).sort(([, a], [, b]) => (a.k || 0) - (b.k || 0)).map(([name]) => name);
const options = (id, names, chosen, texts) => {
  $(id).replaceChildren(...names.map((name, i) => make("option", { value: name }, texts ? texts[i] : name)));
  $(id).value = chosen;
  $(`pick-${id}`).hidden = names.length < 2;
};
const controls = () => {
  const mine = data.boards.filter((b) => b.benchmark === board().benchmark), subjects = board().subjects.map((its) => its.name), names = ks(metric().family);
  options("benchmark", [...new Set(data.boards.map((b) => b.benchmark))], board().benchmark);
  options("protocol", mine.map((b) => b.protocol), board().protocol, mine.map((b) => b.protocol || "none"));
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
  all(place(), ".scope").forEach((node) => { node.hidden = !state.subject; });
};
const show = (anew) => {
  $("boards").replaceChildren(place());
  if (anew) fill();
  order();
  sift();
  curves(state.pins);
  matrix();
  by_subject();
  if (board().problems) { heat_drawn(); differ(); }
  timeline();
  controls();
  remember();
};
const change = (values, anew) => { Object.assign(state, values); settle(); show(anew); };

const go_to = (benchmark, protocol) => {
  const same = data.boards.findIndex((b) => b.benchmark === benchmark && b.protocol === protocol);
  change({ board: same < 0 ? data.boards.findIndex((b) => b.benchmark === benchmark) : same }, true);
};
const listen = () => {
  const on = (id, what, then) => $(id).addEventListener(what, (e) => then(e.target));
  on("benchmark", "change", (e) => go_to(e.value, board().protocol));
  on("protocol", "change", (e) => go_to(board().benchmark, e.value));
  on("subject", "change", (e) => change({ subject: e.value }, true));
  on("family", "change", (e) => { const names = ks(e.value); change({ metric: names.find((name) => view().metrics[name].k === metric().k) || names[0] }, true); });
  on("k", "input", (e) => change({ metric: ks(metric().family)[Number(e.value)] }, true));
  on("search", "input", (e) => change({ search: e.value }));
  on("group", "change", (e) => change({ group: e.checked }));
  on("zoom", "change", (e) => change({ zoom: e.checked }));
  document.querySelector("#controls form").addEventListener("submit", (e) => e.preventDefault());
  addEventListener("hashchange", () => { recall(); show(true); });
};
const scheme = () => {
  const root = document.documentElement.classList, dark = () => root.contains("dark") || (!root.contains("light") && matchMedia("(prefers-color-scheme: dark)").matches);
  const named = () => { $("theme").textContent = dark() ? "Light" : "Dark"; };
  $("theme").addEventListener("click", () => { const now = dark(); root.remove("dark", "light"); root.add(now ? "light" : "dark"); named(); });
  named();
};
const on_paper = () => {  // every board, every row, no folds
  let closed = [];
  const print = (now) => {
    closed.forEach((node) => { node.open = false; });
    closed = [];
    if (!now) { show(); return; }
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
const phone = matchMedia("(max-width: 52rem)");
const enhance = (node, its) => {
  for (const th of all(node, ".scores thead th[data-key]")) {
    const button = make("button", { type: "button" }), key = th.dataset.key;
    button.append(...th.childNodes);
    th.append(button);
    button.addEventListener("click", () => change({ sort: state.sort === key ? `${key}-down` : state.sort === `${key}-down` ? "" : key }));
  }
  for (const tr of rows(node)) {
    tr.home = tr.parentNode;
    const name = its.models[Number(tr.dataset.i)], mouse = (e) => e.pointerType === "mouse";
    tr.addEventListener("pointerenter", (e) => { if (mouse(e)) curves([...new Set([...state.pins, name])]); });
    tr.addEventListener("pointerleave", (e) => { if (mouse(e)) curves(state.pins); });
    tr.addEventListener("click", (e) => { if (phone.matches && !e.target.closest("button")) pin(name); });
  }
  node.querySelector(".more .all").addEventListener("click", () => change({ all: !state.all }));
  node.querySelector(".save-csv").addEventListener("click", () => save(node));
  node.querySelector(".copy-md").addEventListener("click", (e) => copy(node, e.target));
  duel(node);
  if (its.problems) heat(node, its.problems);
};

boards.forEach((node, at) => enhance(node, data.boards[at]));
listen();
scheme();
$("left").hidden = !data.left.length;
$("left").textContent = `Left out, so that the page stays small: ${data.left.join("; ")}. All of it is in leaderboard.duckdb.`;
$("controls").hidden = false;
$("controls").open = !phone.matches;
document.documentElement.classList.add("js");
recall();
show(location.hash.length > 1);
on_paper();
