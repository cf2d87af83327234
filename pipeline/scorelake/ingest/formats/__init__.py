"""Every adapter. A new format is a new file here that binds FORMAT; nothing else has to know of it."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from scorelake.ingest.contract import Format

FORMATS: dict[str, Format] = {
    found.FORMAT.name: found.FORMAT
    for found in (import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
}
GENERIC = FORMATS["generic"]
