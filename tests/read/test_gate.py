"""Gates: verdicts by hand, jointly, between runs and protocols; error rates; files and exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy.stats import binomtest

import scorelake as sl
from conftest import REPO, Cli, attempts, expand, put, run
from pages import blocks
from scorelake.errors import UsageError
from scorelake.metrics.interval import interval
from scorelake.publish.change import look_share


def board(lake: Path, out: Path, base: list[tuple[int, int]], candidate: list[tuple[int, int]], benchmark: str = "b",
          config: str | None = None, **columns: str) -> None:  # fmt: skip
    """Publish two models; (n, c) per problem."""
    for model, pairs in (("base", base), ("new", candidate)):
        rows = expand(
            [(f"p{i}", n, c) for i, (n, c) in enumerate(pairs)], model=model, benchmark=benchmark, **columns
        )
        put(lake, rows, f"{model}-{benchmark}.parquet")
    run(lake, out, config, metrics=["pass@1"])


TIE, WIN, LOSS = ((1, 0), (1, 0)), ((1, 0), (1, 1)), ((1, 1), (1, 0))


@pytest.mark.parametrize(
    ("ties", "wins", "losses", "lower", "upper"),
    [(20, 0, 0, -0.122199, 0.122199), (100, 0, 0, -0.026025, 0.026025), (27, 8, 5, -0.099550, 0.242971),
     (300, 0, 3, -0.023890, 0.004207)],
)  # fmt: skip
def test_verdicts_follow_from_one_sided_bounds(lake: Path, out: Path, ties: int, wins: int, losses: int, lower: float,
                                               upper: float) -> None:  # fmt: skip
    pairs = [TIE] * ties + [WIN] * wins + [LOSS] * losses
    board(lake, out, *([pair[i] for pair in pairs] for i in range(2)))  # type: ignore[arg-type]
    for margin, verdict in ((-lower * 1.01, "pass"), (-lower * 0.99, "undecided")):
        result = sl.gate(out, "base", "new", margin=margin)
        (one,) = result.benchmarks
        assert (result.verdict, one.verdict) == (verdict, verdict)
        assert (one.lower, one.upper) == pytest.approx((lower, upper), abs=1e-6)
    assert "calibration: cannot be measured" in result.text()


def test_the_joint_verdict_needs_every_benchmark(lake: Path, out: Path) -> None:
    even, ahead, behind = [(4, 2)] * 200, [(4, 3)] * 200, [(4, 1)] * 200
    board(lake, out, even, ahead, "up")
    board(lake, out, even, even, "same")
    assert sl.gate(out, "base", "new").verdict == "pass"
    board(lake, out, even[:20], even[:20], "few")
    result = sl.gate(out, "base", "new")
    assert {each.benchmark: each.verdict for each in result.benchmarks} == {
        "up": "pass",
        "same": "pass",
        "few": "undecided",
    }
    assert (result.verdict, sl.gate(out, "base", "new", benchmark="up").verdict) == ("undecided", "pass")
    board(lake, out, even, behind, "down")
    result = sl.gate(out, "base", "new")
    assert result.verdict == "fail"
    assert result.pooled["lift"] == pytest.approx(0)
    with pytest.raises(UsageError, match="no benchmark sme here"):
        sl.gate(out, "base", "new", benchmark="sme")


def test_what_the_candidate_lacks_does_not_pass(lake: Path, out: Path) -> None:
    """Problems that fail are often those that are missing."""
    board(lake, out, [(4, 2)] * 200, [(4, 2)] * 180, "most")
    assert sl.gate(out, "base", "new").verdict == "pass"
    board(lake, out, [(4, 2)] * 200, [(4, 2)] * 179, "few")
    put(lake, expand([("p0", 4, 2)], model="base", benchmark="none"), "none.parquet")
    run(lake, out, metrics=["pass@1"])
    result = sl.gate(out, "base", "new")
    reasons = {each.benchmark: each.reason for each in result.benchmarks if each.verdict != "pass"}
    assert (result.verdict, reasons) == ("undecided", {
        "few": "the base has 200 problems; 180 in common needed ([compare] min_share)",
        "none": "not comparable: new has no graded attempt on it",
    })  # fmt: skip
    assert sl.gate(out, "new", "base", benchmark="most").verdict == "pass", "more problems do no harm"
    (few,) = sl.gate(out, "base", "new", metric="pass@7", benchmark="few").benchmarks
    assert few.reason == "fewer than two problems (or clusters) have a value of pass@7 on both sides"


def test_one_model_in_two_runs_and_under_two_protocols(lake: Path, out: Path) -> None:
    config = '[protocol]\ncolumns = ["engine"]\n'
    board(lake, out, [(4, 3)] * 200, [(4, 3)] * 200, config=config, engine="a")
    board(lake, out, [(4, 3)] * 200, [(4, 0)] * 200, config=config, engine="a")
    assert sl.gate(out, "new", "new", run=["1"]).verdict == "fail"
    assert sl.gate(out, "base", "base", run=["1", "2"]).verdict == "pass"
    other = expand([(f"p{i}", 4, 2) for i in range(200)], model="new", benchmark="b", engine="b")
    put(lake, other, "other.parquet")
    run(lake, out, config, metrics=["pass@1"])
    assert sl.gate(out, "new", "new", protocol=["engine=a", "engine=b"]).verdict == "pass"
    assert sl.gate(out, "new", "new", protocol=["engine=b", "engine=a"]).verdict == "fail"


def test_undecided_says_what_would_decide(lake: Path, out: Path) -> None:
    c = [0, 1, 2, 3, 4, 4, 2, 1] * 5
    board(lake, out, [(4, x) for x in c], [(4, x) for x in reversed(c)])
    (one,) = sl.gate(out, "base", "new").benchmarks
    assert one.verdict == "undecided"
    assert "such problems would decide it" in one.reason
    assert one.calibration is not None
    share, lo, hi = one.calibration["fail"]
    assert (one.calibration["splits"], lo <= share <= hi <= 0.05) == (400, True), "a model is not worse than itself"
    wilson = binomtest(round(share * 400), 400).proportion_ci(method="wilson")
    assert (lo, hi) == pytest.approx(tuple(wilson), abs=1e-12)
    kept = out / "calibration.json"
    for margin, entries in ((0.02, 1), (0.03, 2)):
        sl.gate(out, "base", "new", margin=margin)
        assert len(json.loads(kept.read_text())) == entries, "kept by settings"
    kept.write_text(re.sub(r'"splits": \d+', '"splits": 7', kept.read_text()))
    assert "of 7 comparisons" in sl.gate(out, "base", "new").text()
    put(lake, expand([(f"p{i}", 4, 2) for i in range(40)], model="new", benchmark="b"), "new-b.parquet")
    run(lake, out, metrics=["pass@1"])
    assert "of 400 comparisons" in sl.gate(out, "base", "new").text()


def test_the_verdict_over_all_looks_spends_its_level(lake: Path, out: Path) -> None:
    """Look t has the level 0.05 * 365 / ((364 + t) (365 + t)); the levels of all looks add up to 5%."""
    for look in range(1, 4):
        board(lake, out, [(4, 2)] * 60, [(4, 2)] * (50 - look) + [(4, 1)] * (10 + look))
    (one,) = sl.gate(out, "base", "new", calibration=False).benchmarks
    numbers = np.array([one.lift]), np.array([one.se]), np.array([60.0])
    (lower,) = interval(*numbers, (-1, 1), 1 - 2 * 0.05 * 365 / (367 * 368), far_problems=1.0)[0]
    assert one.lower is not None
    assert lower < one.lower
    for margin, verdict in ((-lower * 1.01, "pass"), (-lower * 0.99, "undecided")):
        result = sl.gate(out, "base", "new", margin=margin, calibration=False)
        assert (result.looks, result.verdict, result.benchmarks[0].verdict_all_looks) == (3, "pass", verdict)
    assert sum(look_share(t) for t in range(1, 10**5)) == pytest.approx(1, abs=0.01)


def test_exit_codes_and_files(lake: Path, out: Path, tmp_path: Path, cli: Cli) -> None:
    board(lake, out, [(4, 2)] * 60, [(4, 2)] * 30 + [(4, 1)] * 30)
    files = ("--junit", tmp_path / "j.xml", "--markdown", tmp_path / "m.md")
    for options, code, verdict in (
        (("--margin", "0.3"), 0, "pass"),
        (("--margin", "0.01"), 3, "fail"),
        (("--margin", "0.12"), 7, "undecided"),
        (("--margin", "0.12", "--undecided", "fail"), 3, "undecided"),
        (("--superiority",), 3, "fail"),
    ):
        done = cli("gate", out, "base", "new", *options, *files, "--json", "--no-calibration")
        document = json.loads(done.stdout)
        assert (done.returncode, document["exit_code"], document["verdict"]) == (code, code, verdict)
        suite = ElementTree.parse(tmp_path / "j.xml").getroot()
        assert (suite.get("tests"), suite.get("failures")) == ("1", str(int(code == 3)))
        assert (tmp_path / "m.md").read_text().startswith(f"**{verdict}**: is new ")
    done = cli("gate", out, "base", "new", "--margin", "0.3")
    assert done.stdout.startswith("pass: is new at most 0.3 worse than base in pass@1?")
    for options, says in (
        (("other",), "no model other here"),
        (("new", "--protocol", "temperature=7"), "no protocol temperature=7 here"),
        (("new", "--margin", "2"), "with a margin of 2 everything passes: pass@1 lies between 0 and 1"),
        (("new", "--margin", "0.1", "--superiority"), "--superiority and --margin exclude each other"),
    ):
        done = cli("gate", out, "base", *options, "--json", "--undecided", "pass")
        document = json.loads(done.stdout)
        assert (done.returncode, document["exit_code"], document["error"]) == (2, 2, says)


def test_scores_and_clusters(lake: Path, out: Path) -> None:
    for model, step in (("base", 0.0), ("new", 0.1), ("twin", 0.0)):
        scores = [i % 7 + i % 3 * step + 5 * step for i in range(40)]
        names, families = [f"p{i}" for i in range(40)], [i // 4 for i in range(40)]
        put(lake, attempts(model=model, problem_id=names, family=families, score=scores), f"{model}.parquet")
    run(lake, out, '[columns]\ncluster = "family"\n', metrics=["avg@N"])
    result = sl.gate(out, "base", "new")
    assert (result.verdict, result.metric, result.benchmarks[0].units) == ("pass", "avg@N", 10)
    same = sl.gate(out, "base", "twin", metric="avg@N")
    assert (same.verdict, same.benchmarks[0].lift) == ("undecided", None)
    assert "set [rubric] bounds" in same.benchmarks[0].reason


def test_the_recipes_for_ci_run(tmp_path: Path) -> None:
    """The commands of both recipes, in order; installing is left to them."""
    for recipe in blocks("docs/gates.md", "yaml"):
        commands = re.findall(r"(?:- run:|^    -) ((?:scorelake|cat) .*)", recipe, flags=re.MULTILINE)
        assert len(commands) >= 2
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(REPO / "fixtures" / "lake", folder / "fixtures" / "lake")
        summary = {"GITHUB_STEP_SUMMARY": str(folder / "summary")}
        for command in commands:
            line = command.replace("scorelake ", f"{sys.executable} -m scorelake ")
            subprocess.run(line, shell=True, check=True, cwd=folder, env=os.environ | summary)
        assert (folder / "gate.xml").exists()
