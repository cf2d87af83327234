"""Adapters for the logs of other tools. Every module here binds a LogFormat; no other module lists the formats.

To add a format:

1. Add a module with a `detect` and a `read` function, and bind FORMAT:

   ```python
   def detect(probe: FileProbe) -> bool:
       return probe.has_records and probe.has("task", "ok")


   def read(source: LogSource, options: IngestOptions, run: RunInfo) -> Iterator[AttemptRow]:
       run.tool, run.run_id, run.model = "mytool", source.tag, source.folder.name
       for line, record in source.lines():
           value = to_verdict(record["ok"], f"line {line:,}: ok")
           yield AttemptRow(record["task"], f"{source.tag}:{line}", value)


   FORMAT = LogFormat("mytool", "mytool results.jsonl", "passed", "ungraded", detect, read)
   ```

   - `detect` decides by content. Exactly one format may accept a file.
   - `read` streams: `source.lines()` for JSON Lines, `source.members("rows")` for one large document,
     `source.companion("metadata.json")` for a small file of metadata. These refuse what is broken.
   - `run` takes model, benchmark, subject, run id, protocol settings, notes, and numbers that the tool reports itself
     (`run.add_claim`). It may be filled in at any time until the last attempt. A name that only rows have goes into
     AttemptRow. Options override both.
   - An attempt needs an id that is the same whenever the file is read: the tool's own, or `source.tag` with the line.
   - Convert values with `values.to_verdict` and `values.to_number`, which refuse what has no clear meaning; look into
     nested objects with `values.get_object`; choose between several metrics with `run.choose`. Raise
     `contract.refusal` for a source that must not be counted. A KeyError or TypeError becomes a refusal by itself.
   - The outcome of LogFormat is "passed" for verdicts and "score" for numbers; its error rule is what the tool does
     with attempts that have no verdict.
   - Tools that write one file per attempt, or metadata into other files, define `group` and `companions`.

2. Add a layout to tests/layouts.py that writes a table of verdicts as the tool would. Counts, repeated runs,
   truncated files, changed verdicts and malformed values are then tested for the new format without further code.
3. Add traps of the format to tests/ingest/test_formats.py, and a row to the table in docs/ingest.md.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from scorelake.ingest.contract import LogFormat

_MODULES = [import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_BOUND = [value for module in _MODULES for value in vars(module).values() if isinstance(value, LogFormat)]
FORMATS = {format_.name: format_ for format_ in _BOUND}
GENERIC = FORMATS["generic"]
