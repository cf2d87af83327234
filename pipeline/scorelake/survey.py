"""What problems come to before they are scored: whole numbers that add up, whatever parts the problems lie in.

A part holds all models of its problems, so that also numbers of different problems add up. What is told here follows
groups and distinct (n, c), never problems.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from scorelake.metrics.chance import MOST_UNITS, Words
from scorelake.metrics.counts import Distinct, distinct
from scorelake.metrics.distributions import Ints
from scorelake.problems import Part, lines, numbered
from scorelake.schemas import GROUP
from scorelake.settings import Settings

CLUSTER, SLICE_VALUE = "_cluster", "slice_value"
BOARD = ("benchmark", "protocol")
ALL = ""
"""The name of what is not sliced."""
_CELL = ("n", "c")


@dataclass(frozen=True)
class Histogram:
    """How many problems of a group share (n, c)."""

    groups: pl.DataFrame
    """The key columns of each group, in their order; `ungraded` attempts, and the `largest` score either way."""
    cells: pl.DataFrame
    """group (a row of the above), n, c and problems, in the order of the first three."""

    @property
    def keys(self) -> list[str]:
        return [name for name in self.groups.columns if name not in ("ungraded", "largest")]

    @property
    def pairs(self) -> Distinct:
        """The distinct (n, c), and which of them each cell has."""
        return distinct(*(self.cells[name].to_numpy() for name in _CELL))

    def named(self, binary: bool) -> pl.DataFrame:
        """The cells with the columns of their group; c is null where there is no pass or fail."""
        cells = self.cells if binary else self.cells.with_columns(c=pl.lit(None, pl.Int64))
        return pl.concat([self.groups[cells["group"]].select(self.keys), cells.drop("group")], how="horizontal")

    def sliced(self, column: str) -> Histogram:
        """The same with the name of what is sliced by as a column."""
        return Histogram(self.groups.with_columns(slice=pl.lit(column)), self.cells)

    def coarser(self, keys: Sequence[str]) -> Histogram:
        """The same problems by fewer columns."""
        if list(keys) == self.keys:
            return self
        return _added([Histogram(self.groups.select(*keys, "ungraded", "largest"), self.cells)], keys)


@dataclass(frozen=True)
class Survey:
    """All that is known of problems before they are scored."""

    problems: int
    distinct: int
    """However many models attempted them."""
    graded: int
    ungraded: int
    binary: bool
    columns: tuple[str, ...]
    """What the parts tell of every problem."""
    rewards: tuple[float, float] | None
    """The least and the largest score."""
    histograms: dict[str, Histogram]
    """By GROUP and cluster, if there are any, for ALL; by slice_value too for each column to slice by."""
    asked: dict[str, pl.DataFrame]
    """Different problems, and those attempted, per benchmark, subject, protocol (and slice_value)."""
    units: dict[tuple[str, str], Words | None]
    """The numbers of the problems (or their clusters) of a benchmark under a protocol; None if they are too many and
    do not matter one by one."""

    @property
    def top_n(self) -> int:
        return int(self.histograms[ALL].cells["n"].max() or 0)  # type: ignore[arg-type]


def survey(path: Path, settings: Settings) -> Survey:
    """The survey of one part."""
    part = Part.read(path)
    cluster, scores = settings.columns.cluster, _scores(part)
    together = [] if cluster is None else [clustered(cluster)]
    histograms, asked = (
        {ALL: _grouped(part, scores, together) if together else _cells(part, scores)},
        {ALL: _asked(part)},
    )
    for column in settings.by:
        value = pl.col(column).cast(pl.String).alias(SLICE_VALUE)
        histograms[column] = _grouped(part, scores, [value, *together])
        asked[column] = _asked(part, part.others([column]).select(value).to_series())
    low, high = scores["low"].min(), scores["high"].max()
    return Survey(
        problems=part.problems,
        distinct=int(part.different(part.label(("benchmark", "subject"))[part.group]).sum()),
        graded=int(part.counts["n"].sum()),
        ungraded=int(part.counts["ungraded"].sum()),
        binary=part.binary,
        columns=tuple(part.columns),
        rewards=None if low is None else (float(low), float(high)),  # type: ignore[arg-type]
        histograms=histograms,
        asked=asked,
        units=_units(part, cluster),
    )


def added(parts: Iterable[Survey]) -> Survey:
    """The survey of all parts."""
    told = [part for part in parts if part.problems]
    if len(told) == 1:
        return told[0]
    rewards = [part.rewards for part in told if part.rewards is not None]
    slices = list(told[0].histograms)
    units: dict[tuple[str, str], Words | None] = {}
    for part in told:
        for board, mine in part.units.items():
            known = units.get(board, mine)
            units[board] = None if known is None or mine is None else np.union1d(known, mine)
    return Survey(
        problems=sum(part.problems for part in told),
        distinct=sum(part.distinct for part in told),
        graded=sum(part.graded for part in told),
        ungraded=sum(part.ungraded for part in told),
        binary=all(part.binary for part in told),
        columns=told[0].columns,
        rewards=(min(low for low, _ in rewards), max(high for _, high in rewards)) if rewards else None,
        histograms={
            name: _added([part.histograms[name] for part in told], told[0].histograms[name].keys) for name in slices
        },
        asked={name: _summed([part.asked[name] for part in told]) for name in slices},
        units=units,
    )


def clustered(column: str) -> pl.Expr:
    """The cluster of each problem; one without any is a cluster of its own."""
    size = pl.col("subject").str.len_bytes().cast(pl.String)  # so that ("A", "1 p") is not ("A 1", "p")
    own = pl.concat_str(pl.lit("problem "), size, pl.lit(" "), "subject", "problem_id")
    named = pl.concat_str(pl.lit("cluster "), pl.col(column).cast(pl.String))
    return pl.coalesce(named, own).alias(CLUSTER)


def _cells(part: Part, scores: pl.DataFrame) -> Histogram:
    """By the groups alone, which are numbers already."""
    n, c, place = part.pairs
    found, many = numbered(part.group * n.size + place, part.starts.size * n.size)
    group, pair = np.divmod(found, n.size)
    problems = np.bincount(many)
    cells = {"group": group.astype(np.uint32), "n": n[pair], "c": c[pair], "problems": problems.astype(np.int64)}
    ungraded = np.add.reduceat(part.counts["ungraded"].to_numpy(), part.starts)
    far = np.fmax.reduceat(scores["largest"].to_numpy(), part.starts)  # null is NaN
    ends = pl.Series("ungraded", ungraded), pl.Series("largest", far).fill_nan(None)
    return Histogram(part.groups.with_columns(ends), pl.DataFrame(cells))


def _grouped(part: Part, scores: pl.DataFrame, more: Sequence[pl.Expr]) -> Histogram:
    """By further columns of the file."""
    names = [*GROUP, *(each.meta.output_name() for each in more)]
    rows = part.others(_needed(more)).with_columns(*more, pl.col("c").fill_null(0), scores["largest"])
    ends = (pl.col("ungraded").sum(), pl.col("largest").max())
    cells = rows.group_by(*names, *_CELL).agg(pl.len().cast(pl.Int64).alias("problems"), *ends)
    groups = cells.group_by(names).agg(ends).sort(names)
    numbers = groups.select(names).with_row_index("group")
    coded = cells.join(numbers, on=names, how="left", nulls_equal=True)
    return Histogram(groups, coded.select("group", *_CELL, "problems").sort("group", *_CELL))


def _needed(more: Sequence[pl.Expr]) -> list[str]:
    roots = [name for each in more for name in each.meta.root_names()]
    return list(dict.fromkeys([*GROUP, *_CELL, "ungraded", *roots]))


def _scores(part: Part) -> pl.DataFrame:
    """The least and the largest score of each problem, and how far they are from zero; null where there are none."""
    if "rewards" not in part.columns:
        return pl.DataFrame({"low": pl.Series([None], dtype=pl.Float64).new_from_index(0, part.problems)}).select(
            "low", high="low", largest="low"
        )
    ends = part.others(["rewards"]).select(low=pl.col("rewards").list.first(), high=pl.col("rewards").list.last())
    return ends.with_columns(largest=pl.max_horizontal(pl.col("low", "high").abs()))


def _asked(part: Part, value: pl.Series | None = None) -> pl.DataFrame:
    """Different problems, and those attempted, per benchmark, subject and protocol, and per value if there are."""
    keys = ["benchmark", "subject", "protocol"]
    label = part.label(keys)
    first = part.groups.select(keys)[np.unique(label, return_index=True)[1]]
    values, of_row = pl.DataFrame({SLICE_VALUE: pl.Series([None], dtype=pl.String)}), label[part.group]
    if value is not None:
        values = pl.DataFrame({SLICE_VALUE: value.unique(maintain_order=True)})
        code = value.to_frame(SLICE_VALUE).join(
            values.with_row_index("code"), on=SLICE_VALUE, how="left", nulls_equal=True, maintain_order="left"
        )["code"]
        of_row = of_row * values.height + code.cast(pl.Int64).to_numpy()
    tried = np.flatnonzero(part.counts["n"].to_numpy() > 0)
    every, attempted = part.different(of_row), part.different(of_row[tried], tried)
    there = np.flatnonzero(every)
    attempted = np.pad(attempted, (0, every.size - attempted.size))[there]
    return pl.concat(
        [
            first[there // values.height],
            values[there % values.height],
            pl.DataFrame({"problems": every[there].astype(np.int64), "attempted": attempted.astype(np.int64)}),
        ],
        how="horizontal",
    )


def _units(part: Part, cluster: str | None) -> dict[tuple[str, str], Words | None]:
    """Numbers of what is drawn as a whole; without clusters only where they may be few."""
    out: dict[tuple[str, str], Words | None] = {}
    subject = part.label(("subject",))
    for board, groups in boards(part.groups):
        rows = part.rows(groups)
        if not rows.size:
            continue
        few = cluster is not None or int(part.different(subject[part.group[rows]], rows).sum()) <= MOST_UNITS
        found = lines(part, groups, cluster) if few else None
        out[board] = None if found is None else np.unique(found.key)
    return out


def boards(groups: pl.DataFrame) -> list[tuple[tuple[str, str], Ints]]:
    """Benchmarks under a protocol, in their order, and the numbers of their groups."""
    told = groups.with_row_index("group").group_by(BOARD, maintain_order=True).agg("group").sort(BOARD)
    return [((b, p), group.to_numpy().astype(np.int64)) for b, p, group in zip(*told.get_columns(), strict=True)]


def _added(parts: Sequence[Histogram], keys: Sequence[str]) -> Histogram:
    """All cells under common groups."""
    ends = (pl.col("ungraded").sum(), pl.col("largest").max())
    groups = pl.concat([part.groups for part in parts]).group_by(keys).agg(ends).sort(keys)
    numbers = groups.select(keys).with_row_index("group")
    cells = []
    for part in parts:
        code = part.groups.select(keys).join(numbers, on=keys, how="left", nulls_equal=True, maintain_order="left")
        cells.append(part.cells.with_columns(group=code["group"].gather(part.cells["group"])))
    together = pl.concat(cells).group_by("group", *_CELL).agg(pl.col("problems").sum())
    return Histogram(groups, together.sort("group", *_CELL))


def _summed(parts: Sequence[pl.DataFrame]) -> pl.DataFrame:
    keys = ["benchmark", "subject", "protocol", SLICE_VALUE]
    return pl.concat(parts).group_by(keys).agg(pl.col("problems", "attempted").sum()).sort(keys)
