"""What a scheduler and a monitor want to know of a run, whatever became of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scorelake.settings import Storage
from scorelake.storage import is_remote, replace_text

_GAUGES = {
    "rows_read": "Rows of the lake.",
    "graded": "Rows with a verdict.",
    "ungraded": "Rows without a verdict.",
    "duplicates": "Rows dropped as repeats of an attempt.",
    "rejected": "Rows that are not valid.",
    "files": "Files in the lake.",
    "quarantined": "Files left out as unreadable.",
}


def write_json(location: str, document: dict[str, Any]) -> None:
    """Replace the report in one step."""
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    if not is_remote(location):
        replace_text(Path(location), text)
        return
    from scorelake.objects import Objects  # noqa: PLC0415  (loaded where it is used)

    folder, _, name = location.rpartition("/")
    Objects(folder, Storage(timeout_s=5, retry_s=5)).send({name: text.encode()})


def write_prometheus(path: Path, document: dict[str, Any], finished: float, seconds: float) -> None:
    """The textfile format of Prometheus' node exporter; counts only where the run came that far."""
    gauges = [
        ("last_run_success", "1 if the last run published or found nothing new.", int(document["exit_code"] == 0)),
        ("last_run_exit_code", "Exit code of the last run.", document["exit_code"]),
        ("last_run_timestamp_seconds", "When the last run ended.", round(finished, 3)),
        ("last_run_duration_seconds", "How long the last run took.", round(seconds, 3)),
    ]
    run = document.get("run", {})
    gauges += [(key, text, run[key]) for key, text in _GAUGES.items() if key in run]
    lines = [
        f"# HELP scorelake_{name} {text}\n# TYPE scorelake_{name} gauge\nscorelake_{name} {number}\n"
        for name, text, number in gauges
    ]
    replace_text(path, "".join(lines))
