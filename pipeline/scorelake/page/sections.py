"""The sections of a board as plain data for the template: the leaderboard, and those that are tables."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from markupsafe import Markup

from scorelake.page import read_file, svg
from scorelake.read.board import BoardRows, Facts, Line, Reader, board_rows
from scorelake.read.format import DASH, Scale, amount, shorten
from scorelake.read.measures import read_costs
from scorelake.read.plan import BUDGET, width_need
from scorelake.read.sentences import ADAPTIVE, is_first_for_sure, tiers
from scorelake.text import escape_controls, plural

COLOURED, MATRIX, SUBJECTS = 3, 40, 24
"""Coloured curves; models in the matrices of pairs and problems; models and columns in tables by subject."""
FEW, MANY = 3, 100
"""Up to FEW models have large rows. With more than MANY, tables are shorter so that the page stays light."""
SMALL = 20
"""Scores by subject on fewer problems are grey."""
UNGRADED = 0.05
"""A model is flagged from this share of ungraded attempts on."""
UNKNOWN = "unknown"
QUERIES: dict[str, dict[str, str]] = tomllib.loads(read_file("sections.toml"))
"""Sections that are one query: the table that must exist, their name, words, caption and query."""
_BAR = Markup(
    '<svg class="stack" aria-hidden="true"><rect class="part-b" width="100%" height="100%"/>'
    '<rect class="part-a" width="{0}" height="100%"/></svg> {0}'
)
_BEST = "SELECT model, step, value_corrected FROM best_step WHERE benchmark = ? AND protocol = ? AND metric = ?"
_Z = NormalDist().inv_cdf(0.975)
_CHANGES = """
SELECT c.model, c.change, c.what, list(h.value ORDER BY h.number)[-12:]
FROM change AS c LEFT JOIN history AS h
    ON h.benchmark = c.benchmark AND h.protocol = c.protocol AND h.metric = c.metric AND h.model = c.model
    AND h.number <= ?
WHERE c.benchmark = ? AND c.protocol = ? AND c.metric = ? AND c.what <> 'gone' GROUP BY ALL
"""


@dataclass(frozen=True)
class Grid:
    """A table of a section. `fold` is the text by which it is unfolded; it is open without."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    fold: str = ""
    xs: Sequence[float] = ()
    """Where the rows are on the x axis of the chart above."""


@dataclass(frozen=True)
class Figure:
    """A chart that is drawn at any size, with its numbers."""

    caption: str
    draw: Callable[[svg.Frame], Markup]
    table: Grid
    source: str = ""
    points: Sequence[Any] = ()
    """Data of all models under this name, from which the script draws pinned ones."""

    @property
    def chart(self) -> Markup:
        """For a wide and for a narrow window; the page shows one of them."""
        return self.draw(svg.WIDE) + self.draw(svg.NARROW)


@dataclass(frozen=True)
class Section:
    """A part of the page below the leaderboard; the template draws all of them alike."""

    kind: str
    name: str
    words: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    legend: Sequence[tuple[int, str]] = ()
    """Colours and names."""
    others: int = 0
    """Models drawn in grey."""
    lists: Sequence[tuple[str, str]] = ()
    tables: Sequence[Grid] = ()
    notes: Sequence[str] = ()
    has_band: bool = False
    is_folded: bool = False


@dataclass(frozen=True)
class BoardView:
    """One board at the metric that is shown, and the session to query for it."""

    facts: Facts
    board: BoardRows
    reader: Reader
    metric: str
    top: int = 50
    problem_names: str = "ids"
    """How problems are named: ids, numbers, or none to leave them out."""

    @property
    def lines(self) -> list[Line]:
        return self.board.lines[self.metric]

    @property
    def scale(self) -> Scale:
        return self.board.scale(self.metric)

    @property
    def key(self) -> tuple[str, str]:
        return self.board.benchmark, self.board.protocol

    def label(self, model: str) -> str:
        return self.facts.label[model]

    def short(self, model: str) -> str:
        return self.facts.short[model]

    def rows(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Query with the benchmark and the protocol as the first two parameters."""
        return self.reader.rows(sql, self.board.benchmark, self.board.protocol, *parameters)

    def dicts(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Query as `rows` does, with the names of the columns."""
        return self.reader.dicts(sql, self.board.benchmark, self.board.protocol, *parameters)


def board_views(facts: Facts, reader: Reader, metric: str, **options: Any) -> list[BoardView]:
    """Return a view of every board at the metric, or at the board's own headline metric where it has no values."""
    return [BoardView(facts, board, reader, board.headline(metric), **options) for board in facts.boards]


def leaderboard(view: BoardView) -> dict[str, Any]:
    """Return the table: each model with its rank range, score, interval, and what these are based on."""
    lines, scale = view.lines, view.scale
    ends = svg.value_ticks(x for line in lines[: view.top] for x in (line.value, line.lo, line.hi))
    axis = (ends[0], ends[-1])
    ranked = [line for line in lines if line.rank is not None]
    tier_class = dict(zip((line.model for line in ranked), _tier_classes(ranked), strict=True))
    changes, flags, costs = _changes(view), _flags(view), board_costs(view)
    measure = next(iter(costs), "")
    cost = {row["model"]: amount(float(f"{row['cost']:.3g}")) for row in costs.get(measure, ())}
    rows = [
        {
            "i": i,
            "line": line,
            "name": view.label(line.model),
            "plot": svg.whisker(line.value, line.lo, line.hi, axis) if i < view.top else "",
            "tier": tier_class.get(line.model, "t0"),
            "change": changes.get(line.model),
            "cost": cost.get(line.model, DASH),
            "flags": flags[line.model],
        }
        for i, line in enumerate(lines)
    ]
    return {
        "ranked": rows[: len(ranked)],
        "unranked": rows[len(ranked) :],
        "scale": scale,
        "axis": svg.axis_labels(axis, scale.percent),
        "has_changes": bool(changes),
        "measure": measure,
        "single": len(lines) == 1,
        "few": len(lines) <= FEW,
    }


def board_costs(view: BoardView) -> dict[str, list[dict[str, Any]]]:
    """Return what the models of the board cost, by measure: money first, then time and tokens."""
    models, by_measure = {line.model for line in view.lines}, dict[str, list[dict[str, Any]]]()
    for row in sorted(
        read_costs(view.reader), key=lambda row: view.facts.settings["measures"][row["measure"]]["kind"]
    ):
        if (row["benchmark"], row["protocol"]) == view.key and row["model"] in models:
            by_measure.setdefault(row["measure"], []).append(row)
    return by_measure


def _tier_classes(ranked: list[Line]) -> list[str]:
    """Return the CSS classes of the rows: the shade of their tier, and the bar that joins the rows of one tier."""
    numbers, out = tiers(ranked), []
    for i, tier in enumerate(numbers):
        before, after = i > 0 and numbers[i - 1] == tier, numbers[i + 1 : i + 2] == [tier]
        joined = " joined first" if after and not before else " joined last" if before and not after else " joined"
        out.append(f"t{tier % 2}{joined if before or after else ''}")
    return out


def _flags(view: BoardView) -> dict[str, str]:
    """Return notes on single models: problems they miss, ungraded attempts."""
    sql = "SELECT model, ungraded FROM model_summary WHERE benchmark = ? AND protocol = ? AND metric = ?"
    ungraded, out = dict(view.rows(sql, view.metric)), {}
    best = {model: row for model, *row in view.rows(_BEST, view.metric)}
    for line in view.lines:
        missed, total = line.problems_of_benchmark - line.problems, ungraded[line.model] + line.attempts
        notes = [f"misses {plural(missed, 'problem')}"] if missed and line.rank is not None else []
        if ungraded[line.model] and ungraded[line.model] >= UNGRADED * total:
            notes.append(f"{ungraded[line.model] / total:.0%} of its attempts are ungraded")
        notes += [ADAPTIVE] if line.sampling == "adaptive" else []
        run = line.model.rpartition("@")[0]
        if run in best:
            notes.append(f"best at step {best[run][0]}: {view.scale.both(best[run][1])}, corrected for the choice")
        out[line.model] = "; ".join(notes)
    return out


def _changes(view: BoardView) -> dict[str, dict[str, Any]]:
    """Return the change since the previous run and a sparkline of the last twelve; empty with one run."""
    board = view.board
    rows = view.reader.rows(_CHANGES, view.facts.run["number"], board.benchmark, board.protocol, view.metric)
    if not any(what in ("moved", "same") for _, _, what, _ in rows):
        return {}
    return {
        model: {"text": what if change is None else view.scale.signed(change), "line": svg.sparkline(values)}
        for model, change, what, values in rows
    }


def subjects(view: BoardView) -> list[dict[str, Any]]:
    """Return the tables of scores by subject and by every slice; a slice may be called subject, too."""
    slices = view.reader.names("slice", "slice_summary")
    shared: dict[str, Any] = {"metric": view.metric, "of": view.board}
    tables = [("subject", board_rows(view.reader, by_subject=True, **shared))]
    tables += [(name, board_rows(view.reader, by_slice=name, **shared)) for name in slices]
    return [_heat_table(view, escape_controls(name), parts) for name, parts in tables if len(parts) > 1]


def _heat_table(view: BoardView, name: str, parts: list[BoardRows]) -> dict[str, Any]:
    """Return models by parts of the benchmark; a cell is None where there is no score."""
    columns = [part.lines[view.metric] for part in parts[:SUBJECTS]]
    cells = [{line.model: (line, is_first_for_sure(line, lines)) for line in lines} for lines in columns]
    models = [line.model for line in view.lines][: SUBJECTS if len(view.lines) <= MANY else SUBJECTS // 2]
    names = [shorten(escape_controls(str(part.part)), 40) for part in parts]
    return {
        "by": name,
        "small": SMALL,
        "names": [(name, max(line.problems for line in lines)) for name, lines in zip(names, columns, strict=False)],
        "rows": [(view.short(model), [column.get(model) for column in cells]) for model in models],
        "omitted": (len(view.lines) - len(models), len(parts) - len(columns)),
    }


def query_section(kind: str, view: BoardView) -> list[Section]:
    """Return the section of QUERIES, if the table exists and has rows of the board."""
    its = QUERIES[kind]
    if not view.reader.rows("SELECT 1 FROM information_schema.tables WHERE table_name = ?", its["table"]):
        return []
    head, rows = view.reader.table(its["query"], view.key)
    body = [[DASH if cell is None else escape_controls(str(cell)) for cell in row] for row in rows]
    return [Section(kind, its["name"], [its["words"]], tables=[Grid(its["caption"], head, body)])] if rows else []


def budget(view: BoardView) -> list[Section]:
    """Return what more attempts and problems would do for the first models, with the numbers of `scorelake plan`."""
    planned = {row[2]: row for row in view.reader.rows(BUDGET) if row[:2] == view.key and None not in row[5:]}
    rows, target = [], 0.0
    for line in view.lines[:12]:
        if line.model not in planned:
            continue
        *_, problems, n, of_attempts, of_problems = planned[line.model]
        now, endless = (_Z * x**0.5 for x in (of_attempts + of_problems, of_problems))
        target = target or max(0.001, float(f"{now / 2:.1g}"))  # half of the first model's, as a round number
        need = width_need(planned[line.model], target, None)
        share = f"{of_attempts / (of_attempts + of_problems) if now else 0:.0%}"
        widths = [f"\u00b1{100 * x:.1f}" for x in (now, endless, now / 2**0.5)]
        widths[1] = widths[1] if of_problems else UNKNOWN  # at the present n they differ by chance only
        needs = [f"{x:,.0f}" if x else "not possible" for x in (need.problems_needed, need.attempts_needed)]
        rows.append([view.short(line.model), f"{problems:,} \u00d7 {n:.1f}", *widths, _BAR.format(share), *needs])
    if not rows:
        return []
    (model, _, now, attempts, doubled, *_), goal = rows[0], f"\u00b1{100 * target:g}"
    at_best = f"more attempts narrow the interval of pass@1 from {now} to {attempts} points at best"
    if attempts == UNKNOWN:
        at_best = f"the interval of pass@1 is {now} points, and the effect of more attempts is {UNKNOWN}"
    words = (
        f"For {model}, {at_best}; twice the problems narrow it to {doubled}. The last two columns answer scorelake "
        f'plan "half-width {target:g}": the problems, or else the attempts on the present ones, that narrow it to '
        f"{goal} points."
    )
    head = ["Model", "Problems \u00d7 attempts", "Now", "Unlimited attempts", "Twice the problems"]
    head += ["Variance from attempts", f"Problems for {goal}", f"Attempts for {goal}"]
    caption = "Approximate half-width of the 95% interval of pass@1 in points, from the standard error"
    return [Section("budget", "How to narrow the intervals", [words], tables=[Grid(caption, head, rows)])]
