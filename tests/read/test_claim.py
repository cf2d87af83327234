"""scorelake compare: a claim that can be quoted, from either side, or the reason why there is none."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from counted import Row, scored
from scorelake.cli import app
from scorelake.errors import UsageError
from scorelake.read.claim import claims


def _model(name: str, c: list[int], n: int = 1, **also: object) -> list[Row]:
    return [{"model": name, "problem_id": i, "n": n, "c": x, **also} for i, x in enumerate(c)]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    a, b = [0] * 8 + [1] * 5 + [0] * 27, [1] * 8 + [0] * 5 + [0] * 27
    return scored(tmp_path, [*_model("a", a), *_model("b", b), *_model("top", [1] * 40), *_model("few", [1] * 5)])


def test_an_inconclusive_claim(out: Path) -> None:
    (text,) = claims(out, "a", "b", "pass@1", None)
    head, *lines = text.splitlines()
    assert head == "b against a (default, pass@1): inconclusive"
    told = {line[2:17].strip(): line[17:] for line in lines}
    assert told["problems"] == "40, attempted by both under the same protocol"
    assert told["lift"].startswith("+0.0750, 95% interval -0.1000 to +0.2500 (paired bootstrap over problems")
    assert told["wins"] == "b ahead on 8, a on 5, equal on 27"
    assert told["sign test"] == "p = 0.291 one-sided, 0.581 two-sided, 0.581 after Holm over 3 pairs"
    assert told["shows"] == "no difference that these problems can settle; that is not evidence of equality"
    assert told["detectable"] == "a true lift of 0.2501 is found 80% of the time with 40 such problems"


def test_the_other_way_round(out: Path) -> None:
    (text,) = claims(out, "b", "a", "PASS@1", "default")
    assert text.startswith("a against b (default, pass@1): inconclusive")
    assert "-0.0750, 95% interval -0.2500 to +0.1000" in text
    assert "a ahead on 5, b on 8, equal on 27" in text
    assert "p = 0.867 one-sided, 0.581 two-sided" in text
    assert claims(out, "a", "top", "pass@1", None)[0].startswith("top against a (default, pass@1): improvement")
    assert claims(out, "top", "a", "pass@1", None)[0].startswith("a against top (default, pass@1): regression")


def test_a_reason_instead_of_a_claim(out: Path) -> None:
    (text,) = claims(out, "a", "few", "pass@1", None)
    assert text.startswith("few against a (default, pass@1): not comparable: problem sets differ (5 of 40 and 5 ")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("pair", "metric", "words"),
    [
        (("a", "x"), "pass@1", "no model x"),
        (("a", "a"), "pass@1", "with itself"),
        (("a", "b"), "pass@2", "by pass@2"),
    ],
)
def test_what_was_not_compared_says_what_is(out: Path, pair: tuple[str, str], metric: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as raised:
        claims(out, *pair, metric, None)
    assert raised.value.hint


def test_the_command(out: Path) -> None:
    got = CliRunner().invoke(app, ["compare", str(out), "a", "b"])
    assert got.exit_code == 0
    assert got.stdout.startswith("b against a (default, pass@1): inconclusive\n")
    assert CliRunner().invoke(app, ["compare", str(out), "a", "b", "--benchmark", "none"]).exit_code == 2


def test_names_are_data(tmp_path: Path) -> None:
    odd = "x'; DROP TABLE comparison; --"
    out = scored(tmp_path, [*_model("a", [0, 1] * 20), *_model(odd, [1, 1] * 20)])
    assert claims(out, "a", odd, "pass@1", None)[0].startswith(f"{odd} against a (default, pass@1): improvement")
