"""What to show for a name: what is invisible made visible, what is endless cut in the middle, and no two alike.

A name is data and stays as it is in every table.
"""

from __future__ import annotations

from collections.abc import Iterable

from scorelake.text import escape_controls

LONGEST = 200
"""Characters of a name that a page shows."""


def shortened(text: str, longest: int = LONGEST) -> str:
    """A text of at most so many characters, cut in the middle, where names of one family differ least."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return text[: longest - 1 - tail] + "\u2026" + (text[-tail:] if tail else "")


def labels(names: Iterable[str], longest: int = LONGEST) -> dict[str, str]:
    """What to show for every name."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        if name in out:
            continue
        label, more = shortened(escape_controls(name), longest), 1
        while label in taken:
            more += 1
            label = f"{shortened(escape_controls(name), longest)} ({more})"
        taken.add(label)
        out[name] = label
    return out
