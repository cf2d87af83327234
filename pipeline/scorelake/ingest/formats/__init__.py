"""Adapters for the logs of other tools. Every module here binds a LogFormat; no other module lists the formats.

To add a format:

1. Add a module with a `detect` and a `read` function, and bind FORMAT:

   ```python
   def detect(probe: FileProbe) -> bool:
       return probe.has_records and probe.has("task", "ok")


   def read(run: LogRun) -> Iterator[AttemptRow]:
       run.tool, run.run_id, run.model = "mytool", run.tag, run.folder.name
       for line, record in run.lines():
           value = to_verdict(record["ok"], f"line {line:,}: ok")
           yield AttemptRow(record["task"], f"{run.tag}:{line}", value)


   FORMAT = LogFormat("mytool", "passed", "ungraded", detect, read)
   ```

   - Exactly one format may accept a file. `read` streams with `run.lines()`, `run.records("rows")` or
     `run.members()`, which refuse what is broken; `run.companion("metadata.json")` loads a small file.
   - `run` may be filled in until the last attempt; names of rows go into AttemptRow. Options override both.
   - An attempt needs an id that is the same whenever the file is read: the tool's own, or `run.tag` with the line.
   - `values.to_verdict`, `to_number` and `get_object` refuse what has no clear meaning; `run.choose` chooses between
     several metrics; `contract.refusal` refuses a source. A KeyError or TypeError becomes a refusal by itself.

2. Add a layout to tests/layouts.py that writes a table of verdicts as the tool would: the laws that all formats keep
   are then tested without further code. Add traps of the format to tests/ingest/test_formats.py, and a row to the
   table in docs/ingest.md.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from scorelake.ingest.contract import LogFormat

_MODULES = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_BOUND = [value for module in _MODULES for value in vars(module).values() if isinstance(value, LogFormat)]
FORMATS = {format_.name: format_ for format_ in _BOUND}
GENERIC = FORMATS["generic"]
