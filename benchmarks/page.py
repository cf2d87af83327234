"""Measured parts of docs/cluster.md, each between two marks that name it."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "cluster.md"


def write(name: str, text: str) -> None:
    """Replace one part of the page, and print it."""
    print(text)
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    page = PAGE.read_text()
    assert begin in page, f"{PAGE} has no place for {name}"
    PAGE.write_text(re.sub(f"{begin}.*?{end}", lambda _: f"{begin}{text.strip()}\n{end}", page, flags=re.DOTALL))
