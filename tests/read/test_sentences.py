"""What is said about a board or a pair follows from rows of the tables by one rule."""

from pathlib import Path
from typing import Any

import pytest

from counted import claims, scored
from scorelake.errors import UsageError
from scorelake.read.board import BoardRows, Facts, Line
from scorelake.read.claim import PairRequest
from scorelake.read.format import canonical, check_names, matches_protocol
from scorelake.read.sentences import is_first_for_sure, pair_conclusion, tiers, verdict
from scorelake.text import protocol_label

# value, rank, rank_lo, rank_hi of each model, best first
Row = tuple[float, int | None, int | None, int | None]


def _lines(rows: list[Row]) -> list[Line]:
    return [
        Line(f"m{i}", value, value - 0.1, value + 0.1, rank, lo, hi, None, 50, 50, 50, 100, None if rank else "why")
        for i, (value, rank, lo, hi) in enumerate(rows)
    ]


def _verdict(rows: list[Row]) -> str:
    names = {f"m{i}": f"m{i}" for i in range(len(rows))}
    board = BoardRows("b", "", "", {"pass@1": _lines(rows)})
    return verdict(Facts({}, {}, [board], {}, names, names), board, "pass@1")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(0.9, 1, 1, 1), (0.5, 2, 2, 3), (0.4, 3, 2, 3)],
         "m0 leads b at pass@1: 90.0% (80.0 to 100.0). The other two models are behind."),
        ([(0.9, 1, 1, 2), (0.8, 2, 1, 3), (0.4, 3, 3, 3)],
         "m1 is statistically indistinguishable from it; one model is behind"),
        ([(0.9, 1, 1, 2), (0.8, 2, 1, 2)],
         "m1 is statistically indistinguishable from it, so there is no clear winner."),
        # the second model is claimed better than the third, the leader is not
        ([(0.9, 1, 1, 3), (0.8, 2, 1, 2), (0.7, 3, 2, 3)],
         "one model is behind. One of these is significantly worse than another model only."),
        ([(0.9, None, None, None), (0.8, 1, 1, 1)],
         "m0 has the highest score on b at pass@1, 90.0%, but is not ranked: why. Of the ranked models, m1 "),
        ([(0.9, 1, 1, 2), (0.9, 1, 1, 2)], "m0 and m1 share the first place on b at pass@1"),
        ([(0.9, 1, None, None), (0.8, 2, None, None)], "Rank ranges were not computed"),
    ],
)  # fmt: skip
def test_the_verdict_follows_from_rank_ranges(rows: list[Row], text: str) -> None:
    assert text in _verdict(rows)


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([(1, 1), (2, 2), (3, 3)], [0, 1, 2]),
        ([(1, 2), (1, 3), (2, 3)], [0, 0, 1]),
        ([(None, None), (None, None)], [0, 1]),  # nothing is known to be alike
    ],
)
def test_a_tier_is_a_model_and_those_that_could_have_its_rank(
    ranges: list[tuple[int | None, int | None]], expected: list[int]
) -> None:
    assert tiers(_lines([(0.5, i + 1, *ends) for i, ends in enumerate(ranges)])) == expected


def test_only_a_model_that_is_better_than_all_others_is_first() -> None:
    for rows, expected in (
        ([(0.9, 1, 1, 1), (0.5, 2, 2, 2)], True),
        ([(0.9, 1, 1, 2), (0.8, 2, 1, 2)], False),
        ([(0.9, 1, None, None), (0.5, 2, None, None)], False),
        ([(0.9, 1, 1, 1)], False),  # there is nobody to be better than
        ([(0.9, 1, 1, 1), (0.5, None, None, None)], False),  # the other is not ranked
    ):
        lines = _lines(rows)  # type: ignore[arg-type]
        assert is_first_for_sure(lines[0], lines) is expected


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"claim": "improvement"}, "b scores higher on problems like these"),
        ({"claim": "regression"}, "b scores lower on problems like these"),
        ({"claim": "equivalent"},
         "the models differ by less than the margin of 0.02 on problems like these (90% interval)"),
        ({"claim": "not worse"}, "b is not worse by the margin of 0.02 or more"),
        ({"claim": "inconclusive", "lo": -0.1, "hi": 0.2, "q": 0.3},
         "the interval contains zero, which does not prove equality"),
        ({"claim": "inconclusive", "lo": 0.01, "hi": 0.2, "q": 0.3},
         "but q is above 0.05; with 10 pairs this happens by chance"),
        ({"claim": "inconclusive", "lo": 0.01, "hi": 0.2, "q": 0.04}, "ranges of ranks overlap"),
    ],
)  # fmt: skip
def test_the_conclusion_of_a_pair_follows_from_its_row(row: dict[str, Any], text: str) -> None:
    assert text in pair_conclusion("a", "b", row, 0.02, 0.95, 10)


def test_metrics_have_one_name() -> None:
    names = {
        "PASS@8": "pass@8",
        "unanimous@2": "pass^2",
        "Spectrum@3": "spectrum@3",
        "Spectrum-Steep@2": "spectrum-steep@2",
    }
    assert {name: canonical(name, {"spectra": {"steep": [0.5, 0.5]}}) for name in names} == names


def test_the_three_closest_names_are_told() -> None:
    with pytest.raises(UsageError, match="no model gpt5 here") as raised:
        check_names("model", ["claude", "gpt-4", "GPT-5", "gpt-5-mini", "llama"], ("claude", "gpt5"))
    assert raised.value.hint == "did you mean: GPT-5, gpt-4, gpt-5-mini?"


def test_own_spectra_are_compared_on_demand(tmp_path: Path) -> None:
    counts = [{"model": m, "problem_id": p, "n": 4, "c": (p + i) % 5} for i, m in enumerate("ab") for p in range(30)]
    out = str(scored(tmp_path, counts, spectra={"steep": [0.25, 0.75]}, metrics={"names": ["pass@1"]}))
    (text,) = claims(out, PairRequest("a", "b", "Spectrum-Steep@2"))
    assert text.startswith("b against a (default, spectrum-steep@2): ")


def test_a_protocol_is_selected_by_any_of_its_values() -> None:
    protocol, label = '{"t": 0.2, "g": "x"}', "t=0.2, g=x"
    assert protocol_label(protocol) == label
    texts = (protocol, "t=0.2", "g=x", "g=x, t=0.2", "t=0.2, g=x", "t=0.3", "t")
    assert [text for text in texts if not matches_protocol(protocol, label, text)] == ["t=0.3", "t"]
