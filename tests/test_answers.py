"""vote@k in the job: answers counted over rows, files and shards, against every draw of k answers."""

from pathlib import Path

import polars as pl
import pytest
from exact import every_draw

from conftest import Cli, ask, attempts, failed_checks, put, run, snapshot, tables
from scorelake.errors import DataError, UsageError

pytestmark = pytest.mark.slow

LISTS = "problem_id", "n", "c", "answer_counts", "answer_passes"
LONG = "The answer, after a long and winding argument that fills more bytes than are kept, is "
Row = tuple[str, object, bool | None, str | None]


def lake(home: Path, files: list[list[Row]]) -> Path:
    """(problem, attempt, passed, answer) per row."""
    for i, rows in enumerate(files):
        problem, attempt, passed, answer = (list(column) for column in zip(*rows, strict=True))
        frame = attempts(model="m", problem_id=problem, attempt=attempt, passed=passed, answer=answer)
        kinds = {"passed": pl.Boolean, "attempt": pl.Int32, "answer": pl.String}
        put(home / "lake", frame.cast(kinds), f"{i}.parquet")  # type: ignore[arg-type]
    return home / "lake"


def letters(said: str, right: str, problem: str = "p") -> list[Row]:
    return [(problem, i, letter in right, letter) for i, letter in enumerate(said)]


def counted(out: Path) -> list[tuple[object, ...]]:
    return pl.read_parquet(snapshot(out) / "problem_counts").select(LISTS).sort("problem_id").rows()


def votes(out: Path, table: str = "model_summary") -> dict[str, float]:
    return dict(ask(out, f"SELECT metric, value FROM {table} WHERE family = 'vote@k'"))


def test_known_values(out: Path, tmp_path: Path, cli: Cli) -> None:
    home = lake(tmp_path, [letters("AABBC", "A", "one"), letters("AAABBCD", "A", "two")])
    done = cli("score", home, "--out", out, "--metrics", "vote@3,VOTE@4,pass@1")
    assert done.returncode == 0, done.stderr
    three = (13 / 30 + float(every_draw("AAABBCD", "A", 3))) / 2
    four = (float(every_draw("AABBC", "A", 4)) + 22 / 35) / 2
    assert votes(out) == pytest.approx({"vote@3": three, "vote@4": four}, rel=1e-13)
    assert counted(out) == [("one", 5, 2, [2, 2, 1], [2, 0, 0]), ("two", 7, 3, [3, 2, 1, 1], [3, 0, 0, 0])]
    row = ask(out, "SELECT mu, sigma, mu_lo, mu_hi, problems_scored FROM model_summary WHERE metric = 'vote@3'")
    assert row == [(None, None, None, None, 2)]
    difference = 13 / 30 - float(every_draw("AAABBCD", "A", 3))
    ((se,),) = ask(out, "SELECT se FROM model_summary WHERE metric = 'vote@3'")
    assert se == pytest.approx(abs(difference) / 2, rel=1e-12)
    assert "vote@3" in cli("show", out, "--metric", "vote@3").stdout
    assert failed_checks(out) == []


def test_every_power_of_two_by_default(out: Path, tmp_path: Path) -> None:
    run(lake(tmp_path, [letters("AABBC", "A", "one"), letters("AAABBCD", "A", "two")]), out)
    got = votes(out)
    assert list(got) == ["vote@1", "vote@2", "vote@4"]
    ((share,),) = ask(out, "SELECT value FROM model_summary WHERE metric = 'pass@1'")
    assert [got["vote@1"], got["vote@2"]] == pytest.approx([share, share], rel=1e-14)


def test_more_draws_than_attempts(out: Path, tmp_path: Path) -> None:
    home = lake(tmp_path, [letters("AABBC", "A", "one"), letters("AAABBCD", "A", "two")])
    run(home, out, metrics=["vote@6", "vote@8"])
    sql = "SELECT metric, value, problems_scored, problems FROM model_summary ORDER BY metric"
    assert ask(out, sql) == [("vote@6", None, 1, 2), ("vote@8", None, 0, 2)]
    run(home, out, "[uncertainty]\nmin_coverage = 0.5\n", metrics=["vote@6"])
    assert votes(out)["vote@6"] == pytest.approx(float(every_draw("AAABBCD", "A", 6)), rel=1e-13)


def test_what_an_answer_is(out: Path, tmp_path: Path) -> None:
    """Both verdicts of one text count; no answer, no vote; an attempt without a verdict has none either."""
    rows: list[Row] = [
        *[("p", 0, True, "A"), ("p", 1, False, "A"), ("p", 2, False, ""), ("p", 3, None, "A")],
        *[("p", 4, True, None), ("p", 5, False, None), ("p", 6, True, "a")],
        *[("q", 0, None, "A"), ("r", 0, True, None)],
    ]
    run(lake(tmp_path, [rows]), out, "[uncertainty]\nmin_coverage = 0.0\n")
    want = [("p", 6, 3, [2, 1, 1], [1, 1, 0]), ("q", 0, 0, [], []), ("r", 1, 1, [], [])]
    assert counted(out) == want
    assert votes(out)["vote@1"] == pytest.approx((3 / 6 + 1) / 2), "one draw is pass@1"
    assert failed_checks(out) == []
    run(tmp_path / "lake", tmp_path / "fail", '[policy]\nungraded = "fail"\n')
    assert counted(tmp_path / "fail")[:2] == [("p", 7, 3, [3, 1, 1], [1, 1, 0]), ("q", 1, 0, [1], [0])]
    assert failed_checks(tmp_path / "fail") == []


@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([1, 1, 2, None], [2, 1]),
        ([0.0, -0.0, 0.5, float("nan")], [2, 1]),
        ([True, False, True, None], [2, 1]),
        ([LONG + "7", LONG + "8", LONG + "7", None], [2, 1]),
        (["é" * 31, "é" * 32, "é" * 33, "é" * 33], [2, 1, 1]),
    ],
)
def test_answers_of_every_type(out: Path, tmp_path: Path, values: list[object], counts: list[int]) -> None:
    put(tmp_path / "lake", attempts(model="m", problem_id="p", passed=[True, True, True, False], answer=values))
    run(tmp_path / "lake", out)
    assert counted(out)[0][3] == counts
    assert failed_checks(out) == []


def test_no_votes_without_answers_that_can_be_right(out: Path, tmp_path: Path) -> None:
    put(tmp_path / "lake", attempts(model="m", problem_id="p", passed=[True, False]))
    run(tmp_path / "lake", out)
    assert not votes(out)
    with pytest.raises(UsageError, match="vote@2: this lake has no column answer to vote with"):
        run(tmp_path / "lake", out, metrics=["vote@2"])
    put(tmp_path / "rewards", attempts(model="m", problem_id="p", score=[0.5, 1.0], answer=["A", "B"]))
    run(tmp_path / "rewards", tmp_path / "scores")
    assert not votes(tmp_path / "scores")
    run(tmp_path / "rewards", tmp_path / "scores", "[policy]\npass_threshold = 0.7\n")
    assert votes(tmp_path / "scores") == {"vote@1": 0.5, "vote@2": 0.5}


def test_files_that_disagree_about_answers(tmp_path: Path) -> None:
    home, out = tmp_path / "lake", tmp_path / "out"
    put(home, attempts(model="m", problem_id="p", passed=[True, False], answer=["A", "B"]), "0.parquet")
    run(home, out)
    put(home, attempts(model="m", problem_id="q", passed=[True, False]), "1.parquet")
    with pytest.raises(DataError, match=r"default: passed in 1.parquet, passed and answer in 0.parquet"):
        run(home, out)
    with pytest.raises(DataError, match="would lose every value of vote@1, vote@2"):
        run(home, out, '[columns]\nanswer = ""\n')
    run(home, out, '[columns]\nanswer = ""\n', allow_empty=True)
    assert not votes(out)
    put(home, attempts(model="m", problem_id="q", passed=[True, False], answer=[["A"], ["B"]]), "1.parquet")
    with pytest.raises(DataError, match=r"column answer is List\(String\); to vote with"):
        run(home, out)


def test_answers_are_read_when_a_vote_is_wanted(tmp_path: Path) -> None:
    home, out = lake(tmp_path, [letters("AABBC", "A")]), tmp_path / "out"
    assert run(home, out, metrics=["pass@1"]).files_read == 1
    (path,) = (out / "partials").glob("*/counts-*")
    assert "answer" not in pl.read_parquet_schema(path), "answers are not even kept"
    assert run(home, out, metrics=["pass@2"]).files_read == 0
    assert run(home, out, metrics=["vote@3"]).files_read == 1, "now answers are wanted"
    assert run(home, out, metrics=["pass@1"]).files_read == 0, "and they do no harm"
    assert "answer_counts" not in pl.read_parquet(snapshot(out) / "problem_counts").columns
    assert run(home, out).files_read == 0
    assert votes(out)["vote@4"] == pytest.approx(float(every_draw("AABBC", "A", 4)))
    config = '[columns]\nanswer = "said"\n'
    (home / "0.parquet").unlink()
    put(home, attempts(model="m", problem_id="p", passed=[True, False], said=["A", "B"]))
    run(home, out, config, metrics=["pass@1"], full=True)
    assert run(home, out, '[compare]\nmetrics = ["vote@1"]\n' + config, metrics=["pass@1"]).files_read == 1


def test_two_answers_of_one_attempt_need_a_rule(out: Path, tmp_path: Path) -> None:
    home = lake(tmp_path, [[("p", 0, False, "B")], [("p", 0, False, "A"), ("p", 1, True, "C")]])
    with pytest.raises(DataError, match=r"1 attempts have conflicting verdicts or answers:\n  m, problem p: at"):
        run(home, out)
    run(home, out, metrics=["pass@1"])
    report = run(home, out, '[duplicates]\nrule = "first"\n')
    assert report.warnings == ("1 attempts had conflicting verdicts or answers; rule first decided",)


@pytest.mark.parametrize(
    ("rule", "counts", "passes"),
    [("first", [1, 1], [1, 0]), ("last", [2], [2]), ("any-pass", [1, 1], [1, 1]), ("all-pass", [1, 1], [1, 0])],
)
def test_one_answer_of_an_attempt_counts(
    tmp_path: Path, out: Path, rule: str, counts: list[int], passes: list[int]
) -> None:
    """The answer of the row that counts, or the smallest of those that were given with the verdict that counts."""
    rows: list[Row] = [("p", 0, None, "D"), ("p", 0, False, "B"), ("p", 0, True, "A"), ("p", 0, True, "C")]
    run(lake(tmp_path, [rows, [("p", 1, True, "C"), ("p", 1, True, "C")]]), out, f'[duplicates]\nrule = "{rule}"\n')
    assert counted(out) == [("p", 2, 1 + (rule in ("last", "any-pass")), counts, passes)]


def test_a_night_of_its_own_equals_all_at_once(out: Path, tmp_path: Path) -> None:
    """Incremental equals full, also when a late file repeats attempts."""
    first, second = letters("AABBC", "A") + letters("XYX", "Y", "q"), letters("AABBCDD", "A")
    run(lake(tmp_path, [first]), out, metrics=["vote@2", "vote@3"])
    run(lake(tmp_path, [first, second]), out, metrics=["vote@2", "vote@3"])
    run(tmp_path / "lake", tmp_path / "full", metrics=["vote@2", "vote@3"])
    assert tables(out) == tables(tmp_path / "full")
    assert counted(out)[0] == ("p", 7, 2, [2, 2, 2, 1], [2, 0, 0, 0])


def test_models_are_compared_by_their_votes(out: Path, tmp_path: Path) -> None:
    """A model that is right less often, but whose errors do not agree, wins the vote."""
    said = {"steady": ("AAAABBBBBB", "A"), "scattered": ("AAABCDEFGH", "A")}
    frames = [
        attempts(model=model, problem_id=f"p{i}", passed=[x in right for x in text], answer=list(text))
        for model, (text, right) in said.items()
        for i in range(30)
    ]
    put(tmp_path / "lake", pl.concat(frames))
    run(tmp_path / "lake", out, metrics=["pass@1", "vote@8"])
    sql = "SELECT metric, model_a, model_b, claim FROM comparison ORDER BY metric"
    assert [row[1:] for row in ask(out, sql)] == [
        ("scattered", "steady", "improvement"),
        ("scattered", "steady", "regression"),
    ]


def test_slices_subjects_and_clusters(out: Path, tmp_path: Path) -> None:
    """Each table gathers the same problems' votes."""
    texts = {"p0": "AABBC", "p1": "AAB", "p2": "BBA", "p3": "ABCA"}
    frames = [
        attempts(
            model="m", subject=f"s{i % 2}", book=f"b{i // 2}", problem_id=problem,
            passed=[x == "A" for x in text], answer=list(text),
        )
        for i, (problem, text) in enumerate(texts.items())
    ]  # fmt: skip
    put(tmp_path / "lake", pl.concat(frames))
    run(tmp_path / "lake", out, '[columns]\ncluster = "book"\n', metrics=["vote@3"], by=("book",))
    value = [float(every_draw(text, "A", 3)) for text in texts.values()]
    want = {"s0": (value[0] + value[2]) / 2, "s1": (value[1] + value[3]) / 2}
    assert dict(ask(out, "SELECT subject, value FROM subject_summary")) == pytest.approx(want)
    want = {"b0": (value[0] + value[1]) / 2, "b1": (value[2] + value[3]) / 2}
    assert dict(ask(out, "SELECT slice_value, value FROM slice_summary")) == pytest.approx(want)
    ((se,),) = ask(out, "SELECT se FROM model_summary")
    assert se == pytest.approx(abs(want["b0"] - want["b1"]) / 2)
