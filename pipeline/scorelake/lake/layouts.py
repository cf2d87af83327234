"""Parquet files of other tools that are lakes already: their columns need no config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_PASSES, _FAILS = ("C", "1", "1.0", "true"), ("I", "N", "0", "0.0", "false")
"""Verdicts of Inspect's scorers; P, partly correct, is neither."""
_SETTINGS = (
    *("agent", "agent_args", "model_options", "solver", "solver_args", "model_generate_config", "model_args"),
    *("model_roles", "task_args", "task_version"),
)
"""Columns with settings of an evaluation: attempts under different ones are not pooled."""
_MEASURES = {"total_tokens": "tokens", "total_time": "time"}


def known_settings(location: str) -> dict[str, Any]:
    """Return the settings of a folder or file by the columns of its first Parquet file; {} if they are not known."""
    path = _first_file(location)
    try:
        schema = pq.read_schema(path) if path else pa.schema([])
    except (OSError, pa.ArrowException):  # counting reports what is wrong with the file
        return {}
    scores = [name for name in schema.names if name.startswith("score_")]
    if {"transcript_id", "task_set", "task_id", "model", "success"} <= set(schema.names):  # Inspect Scout
        columns: dict[str, Any] = {"benchmark": "task_set", "problem_id": "task_id", "attempt": "transcript_id"}
        columns |= {"passed": "success"}
    elif {"sample_id", "id", "epoch", "model"} <= set(schema.names) and scores:  # samples_df of Inspect
        columns = {"problem_id": "id", "attempt": "sample_id", **_outcome(path, schema.field(scores[0]))}
        columns |= {"benchmark": "task_name"} if "task_name" in schema.names else {}
    else:
        return {}
    unused = {key: "" for key in ("passed", "score", "answer") if key not in columns}
    measures = {name: {"kind": kind} for name, kind in _MEASURES.items() if name in schema.names}
    protocol = [name for name in _SETTINGS if name in schema.names]
    return {"columns": {**unused, **columns}, "protocol": {"columns": protocol}, "measures": measures}


def _outcome(path: str, field: pa.Field[Any]) -> dict[str, Any]:
    """Return what a scorer's column is: verdicts as texts, booleans or 0 and 1, or else a reward."""
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return {"passed": field.name, "pass_values": _PASSES, "fail_values": _FAILS}
    values = pq.read_table(path, columns=[field.name])[field.name].unique().to_pylist()
    return {"passed" if {*values} <= {None, 0, 1} else "score": field.name}


def _first_file(location: str) -> str:
    """Return the first Parquet file of a lake on a disk, or ""."""
    if Path(location).is_file():
        return location if location.endswith(".parquet") else ""
    for folder, folders, names in os.walk(location):
        folders[:] = sorted(name for name in folders if not name.startswith(("_", ".")))
        files = [name for name in names if name.endswith(".parquet") and not name.startswith(("_", "."))]
        files = [name for name in files if os.path.isfile(os.path.join(folder, name))]  # a pipe would wait
        if files:
            return os.path.join(folder, min(files))
    return ""
