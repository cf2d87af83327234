"""The view protocol: labels, one column per key of whatever type, and names that are taken already."""

from pathlib import Path

from counted import rows, scored
from scorelake.publish.leaderboard import protocol_table


def _lake(tmp_path: Path, *told: dict[str, object]) -> Path:
    counts = [{"model": "m", "problem_id": p, "n": 1, "c": p % 2, **each} for each in told for p in range(3)]
    return scored(tmp_path, counts, protocol={"columns": list(told[0])})


def test_labels_and_columns(tmp_path: Path) -> None:
    out = _lake(
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
    out = _lake(tmp_path, {"label": "a", "Temp": "x", "temp": "b", odd: "c"})
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
