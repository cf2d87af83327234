"""What data looks like when people read it: no name can move a cursor, hide or turn round what is printed."""

from __future__ import annotations


def escape_controls(text: str) -> str:
    """The text with every character that is not seen spelled out: control, escape, bidirectional, zero-width."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _spelled(each) for each in text)


def escape_control_lines(text: str) -> str:
    """The same of a message of our own, whose further lines begin with two spaces or are empty."""
    first, *more = text.split("\n")
    return escape_controls(first) + "".join(
        ("\n" if line[:2] in ("", "  ") else "\\n") + escape_controls(line) for line in more
    )


def plural(number: int, what: str) -> str:
    """A number of things: 1 problem, 2 problems."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def toml_text(text: str) -> str:
    """A text as TOML spells it, whatever is in it."""
    plain = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in plain) + '"'
