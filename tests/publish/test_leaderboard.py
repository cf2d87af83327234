"""The views and macros, against the kernels."""

import signal
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

from conftest import FIXTURES, REPO, ask, run
from counted import rows, scored
from scorelake import metrics
from scorelake.publish import leaderboard
from scorelake.publish.leaderboard import protocol_table, qualified
from scorelake.publish.views import MACROS, PUBLIC, SOURCES, VIEWS
from scorelake.schemas import KEYS


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sql") / "out"
    run(FIXTURES / "lake", home)
    return home


def test_macros_equal_the_kernels(out: Path) -> None:
    cases = [(n, c, k) for n in range(7) for c in range(n + 1) for k in range(9)]
    cases += [(n, c, k) for n in (1030, 5000, 100_000) for c in (0, 1, 500, n - 3, n) for k in (1, 8, 999)]
    n, c, k = (list(column) for column in zip(*cases, strict=True))
    table = "(SELECT unnest(?) AS n, unnest(?) AS c, unnest(?) AS k)"
    for macro, name in (("pass_at_k", "pass@{}"), ("pass_hat_k", "pass^{}")):
        answers = ask(out, f"SELECT n, c, k, {macro}(n, c, k) FROM {table}", n, c, k)
        assert len(answers) == len(cases)
        for n_, c_, k_, got in answers:
            if k_ < 1 or k_ > n_:
                assert got is None
            else:
                assert got == pytest.approx(float(metrics.finite(name.format(k_), n_, c_)), rel=1e-12, abs=1e-15)


UNDEFINED = """
NULL, 1, 2; 8, NULL, 2; 8, 1, NULL; 8, 9, 2; 8, -1, 2; 8, 3, 0; 8, 3, 9; 8, 3, 2.5; 0, 0, 1; 8.5, 3, 2; 8, 2.5, 2;
-3, -4, 1; 8, 3, 'nan'::DOUBLE; 'nan'::DOUBLE, 3, 2; 'inf'::DOUBLE, 3, 2
"""


@pytest.mark.slow
@pytest.mark.parametrize("macro", ["pass_at_k", "pass_hat_k"])
def test_macros_are_null_where_undefined(out: Path, macro: str) -> None:
    for arguments in UNDEFINED.split(";"):
        assert ask(out, f"SELECT {macro}({arguments})") == [(None,)], arguments
    assert ask(out, f"SELECT {macro}(8, 3, 2.0) = {macro}(8, 3, 2)") == [(True,)]


def test_macros_at_any_n(out: Path) -> None:
    """Where a product over every draw would take hours: only factors that change a digit are taken."""
    huge, quarter = 10**12, 10**12 // 4
    pairs = {
        f"pass_at_k({huge}, {quarter}, 2)": 1 - 0.75**2,
        f"pass_at_k({huge}, {quarter}, {huge // 2})": 1.0,
        f"pass_hat_k({huge}, {quarter}, {huge // 5})": 0.0,
        f"pass_hat_k({huge}, {huge - 1}, {huge // 2})": 0.5,
        f"pass_at_k({2**63 - 1}, {2**62}, 3)": 0.875,
    }
    for call, want in pairs.items():
        assert ask(out, f"SELECT {call}")[0][0] == pytest.approx(want, rel=1e-11), call


@pytest.mark.slow
def test_columns_are_those_of_the_schemas(out: Path) -> None:
    """Every table has the columns of its schema, in their order; every table, view, macro and column a comment."""
    for table in (*PUBLIC, *SOURCES):
        names = [row[0] for row in ask(out, f"DESCRIBE {qualified(table)}")]
        assert set(names) <= set(table.columns), table.name
        assert names == list(table.columns) or table in VIEWS, table.name
    names = ask(out, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'")
    assert {name for (name,) in names} == {table.name for table in PUBLIC}
    own = "comment IS NULL OR comment = 'Carried column of the lake'"
    assert ask(out, f"SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND ({own})") == []
    assert ask(out, "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL") == []
    assert ask(out, "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL") == []
    macros = "SELECT function_name FROM duckdb_functions() WHERE function_type LIKE '%macro' AND NOT internal"
    assert {name for (name,) in ask(out, macros)} == {macro.split()[-1] for macro in MACROS}
    assert ask(out, f"{macros} AND comment IS NULL") == []


def test_every_table_is_documented() -> None:
    text = (REPO / "docs" / "tables.md").read_text()
    assert [table.name for table in PUBLIC if f"`{table.name}`" not in text] == []


@pytest.mark.parametrize("bucket", [10_000, 37])
def test_problems_are_those_of_the_snapshot(bucket: int, tmp_path: Path) -> None:
    """Texts put together from their numbers, carried columns beside them, whatever the number of files."""
    run(FIXTURES / "lake", tmp_path / "out", f"[run]\nbucket_rows = {bucket}", by=("difficulty",))
    parts = sorted(tmp_path.glob("out/snapshots/*/problem_counts/*.parquet"))
    assert (len(parts) > 1) == (bucket == 37)
    want = pl.concat([pl.read_parquet(part) for part in parts]).sort(KEYS)
    got = "* EXCLUDE (reward_mean, reward_max) FROM problem_counts"
    assert [row[0] for row in ask(tmp_path / "out", f"DESCRIBE SELECT {got}")] == want.columns
    assert ask(tmp_path / "out", f"SELECT {got} ORDER BY {', '.join(KEYS)}") == want.rows()


def test_old_readers_can_open_it(out: Path) -> None:
    head = (out / "leaderboard.duckdb").read_bytes()[:20]
    assert head[8:12] == b"DUCK"
    assert int.from_bytes(head[12:20], "little") == 64, "the storage version of DuckDB 1.0"


def query_forever(db: duckdb.DuckDBPyConnection) -> None:
    db.execute("SET threads = 1")  # DuckDB 1.5 looks for signals only where the calling thread does the work
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    db.execute("SELECT count(*) FROM range(100_000_000_000) AS a(i) WHERE i % 7 = 3")


def fail_to_read_a_frame(db: duckdb.DuckDBPyConnection) -> None:
    raise duckdb.InvalidInputException("reading the object registered as 'frame' failed: KeyboardInterrupt: ")


@pytest.mark.slow
@pytest.mark.parametrize("interrupted", [query_forever, fail_to_read_a_frame])
def test_ctrl_c_during_a_statement_is_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: Callable[[duckdb.DuckDBPyConnection], None]
) -> None:
    """DuckDB raises an error of its own then, which does not mean that the disk is broken."""
    with monkeypatch.context() as patch:
        patch.setattr(leaderboard, "_add_comments", interrupted)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            run(FIXTURES / "lake", tmp_path / "out")
        signal.signal(signal.SIGALRM, before)
    assert not [path for path in (tmp_path / "out").iterdir() if "leaderboard" in path.name]
    assert list((tmp_path / "out" / "snapshots").iterdir()) == []
    assert run(FIXTURES / "lake", tmp_path / "out").status == "published"


# --- the view protocol: labels, and a column per key of whatever type and name ---


def protocols(tmp_path: Path, *told: dict[str, object]) -> Path:
    counts = [{"model": "m", "problem_id": p, "n": 1, "c": p % 2, **each} for each in told for p in range(3)]
    return scored(tmp_path, counts, protocol={"columns": list(told[0])})


def test_labels_and_columns(tmp_path: Path) -> None:
    out = protocols(
        tmp_path, {"temperature": 0.0, "judge": "x", "few": True}, {"temperature": 0.2, "judge": "y", "few": False}
    )
    got = rows(out, "SELECT * EXCLUDE (protocol) FROM protocol ORDER BY label")
    assert got == [
        {"label": "temperature=0, judge=x, few=true", "temperature": 0.0, "judge": "x", "few": True},
        {"label": "temperature=0.2, judge=y, few=false", "temperature": 0.2, "judge": "y", "few": False},
    ]
    assert len(rows(out, "FROM model_summary JOIN protocol USING (protocol) WHERE metric = 'pass@1'")) == 2
    silent = "SELECT column_name FROM duckdb_columns() WHERE comment IS NULL AND table_name LIKE 'protocol%'"
    assert rows(out, silent) == []


def test_no_protocol_is_one_protocol(tmp_path: Path) -> None:
    out = scored(tmp_path, [{"model": "m", "problem_id": p, "n": 1, "c": 1} for p in range(3)])
    assert rows(out, "FROM protocol") == [{"protocol": "", "label": ""}]


def test_names_are_data(tmp_path: Path) -> None:
    """Names that our own columns have, that differ in case only, or that would end a statement."""
    odd = """it's "x"; DROP TABLE model_summary; --"""
    out = protocols(tmp_path, {"label": "a", "Temp": "x", "temp": "b", odd: "c"})
    (row,) = rows(out, "SELECT * EXCLUDE (protocol) FROM protocol")
    assert row == {"label": f"label=a, Temp=x, temp=b, {odd}=c", "label_": "a", "Temp": "x", "temp_": "b", odd: "c"}


def test_several_sorts_of_values_are_texts() -> None:
    frame = protocol_table(['{"t": 1}', '{"t": "hot"}', '{"t": null}', '{"u": 123456789012345678901}'])
    assert frame["t"].to_list() == ["1", "hot", None, None]
    assert frame["u"].to_list() == [None, None, None, "123456789012345678901"]


def test_graders_are_found_by_name() -> None:
    frame = protocol_table(['{"t": 1, "Grader_Model": "x"}', '{"t": 1, "Grader_Model": 7}', '{"t": 1}'])
    assert frame["_grader"].to_list() == ["x", "7", None]
    assert frame["_other"].to_list() == ["1", "1", "1"]
    both = protocol_table(['{"judge": "a", "grader": "b"}'])
    assert both["_grader"].to_list() == ["judge=a, grader=b"]
