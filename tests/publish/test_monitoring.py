"""Monitoring files: a failure does not hide the last success."""

import json
import subprocess
from pathlib import Path

import pytest

from conftest import Cli, expand, put
from scorelake.publish.monitoring import write_report


def gauges(path: Path) -> dict[str, float]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: float(number) for name, number in (line.rsplit(" ", 1) for line in lines)}


def test_a_failed_run_reports_the_last_success(lake: Path, out: Path, tmp_path: Path, cli: Cli) -> None:
    file = tmp_path / "metrics.prom"
    put(lake, expand([("a", 4, 2), ("b", 4, 4)], model='m"\\\n'))
    told = ("--metrics-file", file, "--scores", "--metrics", "pass@1")
    assert cli("score", lake, "--out", out, *told).returncode == 0
    good, first = gauges(file), json.loads((out / "report.json").read_text())
    assert (first["status"], first["lake"], first["version"] != "") == ("published", str(lake), True)
    assert (good["scorelake_rows_new"], good["scorelake_models"], good["scorelake_quarantined"]) == (8, 1, 0)
    assert good["scorelake_output_bytes"] > 10_000
    score = 'scorelake_score{benchmark="default",model="m\\"\\\\\\n",protocol="",metric="pass@1"}'
    assert good[score] == 0.75

    (lake / "bad.parquet").write_text("no")
    assert cli("score", lake, "--out", out, *told).returncode == 3
    bad, second = gauges(file), json.loads((out / "report.json").read_text())
    assert (second["status"], second["exit_code"], second["lake"]) == ("failed", 3, str(lake))
    assert second["last_success"]["run"]["run_id"] == first["run"]["run_id"]
    assert second["last_publication"] == first["time"]
    assert (bad["scorelake_last_run_success"], bad["scorelake_last_run_exit_code"]) == (0, 3)
    for name in ("rows_read", "models", "last_success_timestamp_seconds", "last_publication_timestamp_seconds"):
        assert bad[f"scorelake_{name}"] == good[f"scorelake_{name}"], name
    assert cli("score", lake, "--out", out, *told).returncode == 3
    third = json.loads((out / "report.json").read_text())
    assert third["last_success"] == second["last_success"], "however often it fails"

    (lake / "bad.parquet").unlink()
    assert cli("score", lake, "--out", out, *told).returncode == 0
    fourth = json.loads((out / "report.json").read_text())
    assert (fourth["status"], fourth["last_publication"], "last_success" in fourth) == (
        "unchanged",
        first["time"],
        False,
    )
    assert gauges(file)["scorelake_rows_new"] == 0


def test_quiet(lake: Path, out: Path, cli: Cli) -> None:
    put(lake, expand([("a", 4, 2)], model="m"))
    done = cli("score", lake, "--out", out, "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (lake / "bad.parquet").write_text("no")
    assert "bad.parquet" in cli("score", lake, "--out", out, "--quiet").stderr


def test_a_full_stdout(lake: Path, out: Path, cli: Cli) -> None:
    """The run was published, and nothing else is said."""
    put(lake, expand([("a", 4, 2)], model="m"))
    with open("/dev/full", "w") as full:
        import sys

        command = [sys.executable, "-m", "scorelake", "score", str(lake), "--out", str(out), "--json"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, "stdout cannot be written" in done.stderr) == (4, True)
    assert "nothing was published" not in done.stderr
    assert json.loads((out / "report.json").read_text())["status"] == "published"


@pytest.mark.parametrize("there", [["data.csv"], ["report.json", "data.csv"]])
def test_a_folder_of_somebody_else_gets_no_report(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        (tmp_path / name).write_text("precious")
    write_report(str(tmp_path), {"exit_code": 3})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(there, "precious")
    write_report(str(tmp_path / "new"), {"exit_code": 3})
    write_report(str(tmp_path / "new"), {"exit_code": 4})
    assert json.loads((tmp_path / "new" / "report.json").read_text()) == {"exit_code": 4}
