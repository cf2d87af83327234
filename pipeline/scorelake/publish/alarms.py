"""What monitors read: report.json beside the leaderboard, and a textfile for Prometheus.

Both are written whatever happens. A failure is told with its time, version, lake and error, and does not replace what
is known of the last run that went well: that stays inside, so that an alarm can say since when.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from scorelake.errors import ScorelakeError
from scorelake.settings import Storage
from scorelake.storage.disk import MARK, is_marked, is_remote, read_json, replace_text
from scorelake.version import __version__

NAME = "report.json"
_HASTY = Storage(timeout_s=5, retry_s=5)
_GAUGES = {
    "rows_read": "Rows of the lake.",
    "rows_new": "Rows of files that no earlier run had counted.",
    "graded": "Rows with a verdict.",
    "ungraded": "Rows without a verdict.",
    "duplicates": "Rows dropped as repeats of an attempt.",
    "rejected": "Rows that are not valid.",
    "files": "Files in the lake.",
    "excluded": "Files left out by [lake] exclude.",
    "quarantined": "Files left out as unreadable.",
    "models": "Models on the leaderboard.",
    "problems": "Problems of all models added up.",
}


def completed(document: dict[str, Any], out: str, lake: str, seconds: float) -> dict[str, Any]:
    """A document with when, by what and of what; a failure with the last success inside."""
    whole = document | {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "version": __version__,
        "lake": lake,
        "out": out,
    }
    before = _before(out)
    success = before if before.get("exit_code") == 0 else before.get("last_success")
    published = before.get("last_publication")
    if document["exit_code"] == 0:
        return whole | {"last_publication": whole["time"] if document["status"] == "published" else published}
    kept = {key: value for key, value in (success or {}).items() if key != "last_success"}
    return whole | {"last_success": kept or None, "last_publication": published}


def _before(out: str) -> dict[str, Any]:
    """The report that is there."""
    told: Any = None
    if not is_remote(out):
        told = read_json(Path(out) / NAME)
    else:
        from scorelake.storage.objects import Objects  # noqa: PLC0415 - obstore is loaded where it is used

        with suppress(ScorelakeError, ValueError):
            there = Objects(out, _HASTY)
            found = there.find(NAME)
            told = json.loads(there.read(found, 0, found.size)) if found else None
    return told if isinstance(told, dict) else {}


def write_report(out: str, document: dict[str, Any]) -> None:
    """Replace the report in one step; only in an output of ours, or where there is nothing yet."""
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if is_remote(out):
        from scorelake.storage.objects import Objects  # noqa: PLC0415 - obstore is loaded where it is used

        there = Objects(out, _HASTY)
        if there.find(MARK) or not there.list():
            there.send({NAME: text.encode()})
        return
    home = Path(out)
    if is_marked(home) or not home.exists() or (home.is_dir() and all(p.name == NAME for p in home.iterdir())):
        replace_text(home / NAME, text)


def write_textfile(path: Path, document: dict[str, Any], scores: Iterable[tuple[dict[str, str], float]] = ()) -> None:
    """The textfile format of Prometheus' node exporter. After a failure, counts are those of the last success."""
    success = document if document["exit_code"] == 0 else document.get("last_success") or {}
    gauges: list[tuple[str, str, Any]] = [
        ("last_run_success", "1 if the last run published or found nothing new.", int(document["exit_code"] == 0)),
        ("last_run_exit_code", "Exit code of the last run.", document["exit_code"]),
        ("last_run_timestamp_seconds", "When the last run ended.", _seconds(document["time"])),
        ("last_run_duration_seconds", "How long the last run took.", document["seconds"]),
        ("last_success_timestamp_seconds", "When a run last went well.", _seconds(success.get("time"))),
        ("last_publication_timestamp_seconds", "When numbers were last new.", _seconds(document["last_publication"])),
        ("output_bytes", "Bytes of the output.", _bytes(document["out"])),
    ]
    run = success.get("run", {})
    if success.get("status") == "unchanged":
        run = run | {"rows_new": 0}
    gauges += [(key, text, run.get(key)) for key, text in _GAUGES.items()]
    lines = [
        f"# HELP scorelake_{name} {text}\n# TYPE scorelake_{name} gauge\nscorelake_{name} {number}\n"
        for name, text, number in gauges
        if number is not None
    ]
    told = [f"scorelake_score{{{_labels(names)}}} {value}\n" for names, value in scores]
    if told:
        lines += ["# HELP scorelake_score Value of a model.\n# TYPE scorelake_score gauge\n", *told]
    replace_text(path, "".join(lines))


def _labels(names: dict[str, str]) -> str:
    quoted = {key: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, text in names.items()}
    return ",".join(f'{key}="{text}"' for key, text in quoted.items())


def _seconds(time: str | None) -> float | None:
    return datetime.fromisoformat(time).timestamp() if time else None


def _bytes(out: str) -> int | None:
    """On a disk; of object storage the store itself tells."""
    if is_remote(out) or not Path(out).is_dir():
        return None
    total = 0
    for path in Path(out).rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() else 0
    return total
