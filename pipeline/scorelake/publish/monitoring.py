"""Files for monitoring: report.json in the output, and a textfile for Prometheus.

Both are written after every run, failed or not. The report of a failure contains that of the last success, so that an
alert can tell since when runs fail.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scorelake.errors import ScorelakeError
from scorelake.schemas import RUN
from scorelake.settings import Storage
from scorelake.storage.disk import MARK, is_marked, is_remote, read_bytes, replace_text, total_size
from scorelake.version import __version__

REPORT_FILE = "report.json"
_SHORT_TIMEOUT = Storage(timeout_s=5, retry_s=5)
_RUN_GAUGES = (
    *("rows_read", "rows_new", "graded", "ungraded", "duplicates", "rejected"),
    *("files", "excluded", "quarantined", "models", "problems"),
)
"""Columns of the run, which are described as in its table."""


def complete_report(report: dict[str, Any], out: str, lake: str, seconds: float) -> dict[str, Any]:
    """Add time, version and location to a report, and to that of a failure the last success."""
    report = report | {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "version": __version__,
        "lake": lake,
        "out": out,
    }
    previous: dict[str, Any] = {}
    with suppress(OSError, ScorelakeError, ValueError, RecursionError):
        found = json.loads(read_bytes(f"{out.rstrip('/')}/{REPORT_FILE}", _SHORT_TIMEOUT))
        previous = found if isinstance(found, dict) else {}
    success = previous if previous.get("exit_code") == 0 else previous.get("last_success")
    published = previous.get("last_publication")
    if report["exit_code"] == 0:
        return report | {"last_publication": report["time"] if report["status"] == "published" else published}
    success = {key: value for key, value in (success or {}).items() if key != "last_success"}
    return report | {"last_success": success or None, "last_publication": published}


def write_report(out: str, report: dict[str, Any]) -> None:
    """Replace report.json atomically, in an output of scorelake or in an empty folder only."""
    text = json.dumps(report, indent=1, sort_keys=True) + "\n"
    if is_remote(out):
        from scorelake.storage.objects import Objects  # noqa: PLC0415  (obstore loads slowly)

        store = Objects(out, _SHORT_TIMEOUT)
        if store.find(MARK) or not store.list():
            store.send({REPORT_FILE: text.encode()})
        return
    home = Path(out)
    if is_marked(home) or not home.exists() or (home.is_dir() and all(p.name == REPORT_FILE for p in home.iterdir())):
        replace_text(home / REPORT_FILE, text)


def write_textfile(path: Path, report: dict[str, Any], scores: Iterable[tuple[dict[str, str], float]] = ()) -> None:
    """Write gauges for Prometheus' textfile collector; after a failure, counts are those of the last success."""
    success, out = report if report["exit_code"] == 0 else report.get("last_success") or {}, Path(report["out"])
    gauges: list[tuple[str, str, Any]] = [
        ("last_run_success", "1 if the last run published or found nothing new.", int(report["exit_code"] == 0)),
        ("last_run_exit_code", "Exit code of the last run.", report["exit_code"]),
        ("last_run_timestamp_seconds", "End of the last run.", _seconds(report["time"])),
        ("last_run_duration_seconds", "Duration of the last run.", report["seconds"]),
        ("last_success_timestamp_seconds", "End of the last successful run.", _seconds(success.get("time"))),
        ("last_publication_timestamp_seconds", "Last publication.", _seconds(report["last_publication"])),
        # object stores report their own size
        ("output_bytes", "Size of the output.", total_size(out.resolve()) if out.is_dir() else None),
    ]
    run = success.get("run", {})
    if success.get("status") == "unchanged":
        run = run | {"rows_new": 0}
    gauges += [(key, f"{RUN.columns[key][1]}.", run.get(key)) for key in _RUN_GAUGES]
    lines = [
        f"# HELP scorelake_{name} {text}\n# TYPE scorelake_{name} gauge\nscorelake_{name} {number}\n"
        for name, text, number in gauges
        if number is not None
    ]
    kinds = {"score": "Value of a model.", "measure_total": "Sum of a measure over the graded attempts."}
    samples: dict[str, list[str]] = {name: [] for name in kinds}
    for names, value in scores:
        quoted = (text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for text in names.values())
        labels = ",".join(f'{key}="{text}"' for key, text in zip(names, quoted, strict=True))
        name = "measure_total" if "measure" in names else "score"
        samples[name].append(f"scorelake_{name}{{{labels}}} {value}\n")
    for name, text in kinds.items():
        head = f"# HELP scorelake_{name} {text}\n# TYPE scorelake_{name} gauge\n"
        lines += [head, *samples[name]] if samples[name] else []
    replace_text(path, "".join(lines))


def _seconds(time: str | None) -> float | None:
    return datetime.fromisoformat(time).timestamp() if time else None
