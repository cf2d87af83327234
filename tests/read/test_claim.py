"""scorelake compare: a claim that can be quoted, from either side, or the reason why there is none."""

from pathlib import Path
from statistics import NormalDist
from typing import Any

import polars as pl
import pytest

from counted import Row, claims, lake, rows, scored
from scorelake.errors import UsageError
from scorelake.pipeline import score_lake
from scorelake.publish.snapshot import Output
from scorelake.read.claim import PairRequest
from scorelake.settings import Settings


def _model(name: str, c: list[int], n: int = 1, **also: object) -> list[Row]:
    return [{"model": name, "problem_id": i, "n": n, "c": x, **also} for i, x in enumerate(c)]


def _lines(text: str) -> dict[str, str]:
    return {line[2:17].strip(): line[17:] for line in text.splitlines()[1:]}


def claim(out: object, *names: str, **options: Any) -> str:
    """The text of the only comparison of two models."""
    (text,) = claims(str(out), PairRequest(*names, **options))
    return text


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> str:
    a, b = [0] * 8 + [1] * 5 + [0] * 27, [1] * 8 + [0] * 5 + [0] * 27
    counts = [*_model("a", a), *_model("b", b), *_model("top", [1] * 40), *_model("few", [1] * 5)]
    return str(scored(tmp_path_factory.mktemp("claim"), counts))


def test_an_inconclusive_claim(out: str) -> None:
    text = claim(out, "a", "b")
    assert text.splitlines()[0] == "b against a (default, pass@1): inconclusive"
    lines = _lines(text)
    assert lines["problems"] == "40, attempted by both under the same protocol"
    (row,) = rows(Path(out), "FROM comparison WHERE model_a = 'a' AND model_b = 'b' AND metric = 'pass@1'")
    interval = f"+0.0750, 95% interval {row['lo']:+.4f} to {row['hi']:+.4f}"
    assert lines["lift"] == f"{interval} (paired bootstrap over problems, 10,000 resamples)"
    assert lines["wins"] == "b ahead on 8, a on 5, equal on 27"
    assert lines["flip test"].startswith("p = 0.291 one-sided, 0.581 two-sided")
    assert lines["q"] == "0.581 (Benjamini-Hochberg), 0.581 by Holm, over all 3 pairs of default, pass@1"
    assert lines["shows"].startswith("no significant difference; the interval contains zero")
    se = (row["hi"] - row["lo"]) / 2 / 1.959964
    lift = (NormalDist().inv_cdf(1 - 0.05 / 3 / 2) + NormalDist().inv_cdf(0.8)) * se
    want = f"a true lift of {lift:.4f} is found 80% of the time with 40 such problems, adjusted for 3 pairs"
    assert lines["detectable"] == want


@pytest.mark.parametrize(
    ("a", "b", "parts"),
    [
        ("b", "a", ["inconclusive\n", "-0.0750, 95% interval -0.2", "a ahead on 5, b on 8", "p = 0.867 one-sided"]),
        ("a", "top", ["improvement\n"]),
        ("top", "a", ["regression\n"]),
        ("a", "few", ["not comparable: problem sets differ (5 of 40 and 5 "]),
        ("few", "a", ["not comparable: problem sets differ (5 of 5 and 40 "]),
    ],
)
def test_either_way_round(out: str, a: str, b: str, parts: list[str]) -> None:
    text = claim(out, a, b, "PASS@1", "default")
    assert text.startswith(f"{b} against {a} (default, pass@1): {parts[0]}")
    assert [part for part in parts if part not in text] == []
    assert ("\n" in text) == ("not comparable" not in text)


@pytest.mark.parametrize(
    ("pair", "words", "hint"),
    [
        (PairRequest("a", "tpo"), "no model tpo", "did you mean: top, "),
        (PairRequest("A", "b"), "no model A", "did you mean: a, "),
        (PairRequest("a", "a"), "compared with itself", "protocols: "),
        (PairRequest("a", "b", benchmark="defualt"), "no benchmark defualt", "default"),
        (PairRequest("a", "b", protocols=("temperature=1",)), "no protocol temperature=1", "none"),
        (PairRequest("a", "b", runs=("2031",)), "no run 2031", "kept runs: 20"),
        (PairRequest("a", "b", "pass@1", None, ("x", "y", "z")), "two sides", "once or twice"),
        (PairRequest("a", "b", "vote@3"), "no column answer", "answer"),
        (PairRequest("a", "b", "geom-ds@2"), "no score per problem", "leave it out"),
        (PairRequest("a", "b", "pas@1"), "pas@1", ""),
    ],
)
def test_an_unknown_name_suggests_others(out: str, pair: PairRequest, words: str, hint: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        claims(out, pair)
    assert hint in (raised.value.hint or "")


@pytest.mark.slow
def test_any_metric_on_demand(tmp_path: Path) -> None:
    """The same numbers as if the metric had been compared, but a family of one."""
    counts = [*_model("a", [1, 0, 3, 2] * 10, n=4), *_model("b", [2, 1, 3, 0] * 10, n=4), *_model("c", [1] * 40, n=4)]
    out = str(scored(tmp_path / "one", counts))
    text = claim(out, "a", "b", "maj@3")
    other = scored(tmp_path / "two", counts, compare={"metrics": ["maj@3"]})
    (row,) = rows(other, "FROM comparison WHERE model_a = 'a' AND model_b = 'b'")
    lines = _lines(text)
    assert lines["lift"].startswith(f"{row['lift']:+.4f}, 95% interval {row['lo']:+.4f} to {row['hi']:+.4f} ")
    assert lines["flip test"].startswith(
        f"p = {row['p_one_sided']:.3g} one-sided, {row['p_two_sided']:.3g} two-sided"
    )
    assert lines["q"].startswith(f"{row['p_two_sided']:.3g}, equal to p: a single comparison is not adjusted")
    assert "n is below k = 8" in claim(out, "a", "b", "pass@8")


COLD, HOT = {"temperature": 0.0, "grader": "x"}, {"temperature": 0.8, "grader": "x"}


@pytest.fixture(scope="module")
def hot(tmp_path_factory: pytest.TempPathFactory) -> str:
    counts = [
        *_model("a", [0, 1] * 20, **COLD),
        *_model("a", [1, 1] * 20, **HOT),
        *_model("b", [0, 0] * 20, **HOT),
        *_model("c", [1, 0] * 20, **COLD),
    ]
    return str(scored(tmp_path_factory.mktemp("hot"), counts, protocol={"columns": ["temperature", "grader"]}))


def test_two_protocols_of_one_model(hot: str) -> None:
    first = "a (temperature=0.8, grader=x) against a (temperature=0, grader=x) (default, pass@1): improvement"
    for protocols in ((), ("temperature=0", "temperature=0.8"), ("temperature=0, grader=x", "temperature=0.8")):
        text = claim(hot, "a", "a", protocols=protocols)
        assert text.splitlines()[0] == first
        assert _lines(text)["problems"] == "40, attempted under both protocols"
    turned = claim(hot, "a", "a", protocols=("temperature=0.8", "temperature=0"))
    assert "regression" in turned.splitlines()[0]
    with pytest.raises(UsageError, match="itself"):
        claims(hot, PairRequest("a", "a", protocols=("temperature=0",)))


def test_protocols_of_two_models(hot: str) -> None:
    text = claim(hot, "a", "b")
    assert text.startswith("b against a (default, temperature=0.8, grader=x, pass@1): regression")
    assert claim(hot, "a", "b", protocols=("temperature=0.8",)) == text
    for options in ({}, {"metric": "avg@N"}, {"protocols": ("temperature=0.8",)}):
        text = claim(hot, "b", "c", **options)
        assert text.endswith("not comparable: protocol differs (temperature 0.8 and 0)")


@pytest.mark.slow
def test_two_runs(tmp_path: Path) -> None:
    out, counts = scored(tmp_path, _model("a", [0, 1] * 20)), [*_model("a", [1, 1] * 20), *_model("b", [0, 1] * 20)]
    ((first,),) = [tuple(row.values()) for row in rows(out, "SELECT run_id FROM run")]
    score_lake(lake(tmp_path / "new", counts), Output(out), Settings(), full=True)
    text = claim(out, "a", "a", runs=(first,))
    head, second = text.splitlines()[:2]
    assert head.startswith("a (run ")
    assert head.endswith(f" against a (run {first}) (default, pass@1): improvement")
    assert "attempted in both runs" in second
    assert "inconclusive" in claim(out, "a", "b", runs=(first[:-2],)).splitlines()[0]
    with pytest.raises(UsageError, match="no model b"):
        claims(str(out), PairRequest("a", "b", runs=(first, first)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("c", "margin", "verdict", "turned"),
    [
        ([1, 2] * 20, 0.1, "equivalent", "equivalent"),
        ([3, 2] * 4 + [0, 2] * 2 + [1, 2] * 14, 0.05, "not worse", "inconclusive"),
        ([0, 1] * 8 + [1, 2] * 12, 0.05, "regression", "improvement"),
        ([3, 0] * 20, 0.01, "inconclusive", "inconclusive"),
    ],
)
def test_margins(tmp_path: Path, c: list[int], margin: float, verdict: str, turned: str) -> None:
    counts = [*_model("a", [1, 2] * 20, n=4), *_model("b", c, n=4)]
    out = str(scored(tmp_path, counts, compare={"margin": margin}))
    for names, want in (("ab", verdict), ("ba", turned)):
        text = claim(out, *names)
        assert text.splitlines()[0].endswith(f": {want}"), text
        assert (f"margin of {margin}" in text) == (want in ("equivalent", "not worse"))


def test_a_benchmark_without_a_graded_attempt_is_not_comparable(tmp_path: Path) -> None:
    rows_ = [{"benchmark": "y", "model": m, "problem_id": i, "passed": i % 2 == 0} for m in "ab" for i in range(30)]
    rows_ += [{"benchmark": "x", "model": m, "problem_id": i, "passed": None} for m in "ab" for i in range(30)]
    out = scored(tmp_path, pl.DataFrame(rows_))
    for metric in ("pass@1", "pass@2"):
        text = claim(out, "a", "b", metric, "x")
        assert "not comparable: too few problems (0 in common, 20 needed)" in text


def test_scores_are_compared_by_their_mean(tmp_path: Path) -> None:
    rows_ = [{"model": m, "problem_id": i, "score": i % 7 + (m == "b")} for m in "ab" for i in range(30)]
    assert claim(scored(tmp_path, pl.DataFrame(rows_)), "a", "b").startswith(
        "b against a (default, avg@N): improvement"
    )


def test_a_name_cannot_forge_a_line(tmp_path: Path) -> None:
    rows_ = [{"model": m, "problem_id": i, "passed": True} for m in ("a\n  shows  better", "b") for i in range(3)]
    out = scored(tmp_path, pl.DataFrame(rows_))
    assert claim(out, "a\n  shows  better", "b").startswith("b against a\\n  shows  better (default, pass@1): ")
