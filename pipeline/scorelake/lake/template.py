"""Guesses as a config that a person reads: every line with what it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scorelake.lake.guess import Guesses
from scorelake.text import toml_text

_WIDTH = 34


def config(guesses: Guesses, lake: str) -> str:
    """The text of a scorelake.toml."""
    return "\n".join(_lines(guesses, lake)) + "\n"


def _lines(guesses: Guesses, lake: str) -> Iterator[str]:
    yield f"# Guessed by `scorelake init` from some rows of {_line(lake)}. Read it before you trust it."
    yield ""
    yield "[columns]"
    for key, guess in guesses.columns.items():
        if guess.column is None:
            needed = "MISSING: " if key in guesses.missing else ""
            yield _beside(f'# {key} = "..."', f"{needed}{guess.why}")
        else:
            yield _beside(f"{key} = {toml_text(guess.column)}", guess.why)
        if key == "passed":
            yield from _words(guesses)
    if guesses.carry:
        told = "; ".join(f"{column.name}: {column.told}" for column in guesses.carry)
        yield _beside(f"carry = {_list(column.name for column in guesses.carry)}", f"kept with each problem; {told}")
    if guesses.protocol:
        told = "; ".join(f"{column.name}: {column.told}" for column in guesses.protocol)
        yield ""
        yield "[protocol]"
        names = _list(column.name for column in guesses.protocol)
        yield _beside(f"columns = {names}", f"different values are never pooled; {told}")
    if guesses.no_attempts:
        yield ""
        yield "[duplicates]"
        yield _beside('policy = "off"', "attempt is no name of an attempt, see above")
    if guesses.columns["passed"].column is None and guesses.columns["score"].column is not None:
        yield ""
        yield "[policy]"
        yield _beside("# pass_threshold = 0.5", "a score from here on is a pass: without it there is no pass@k")


def _words(guesses: Guesses) -> Iterator[str]:
    if guesses.pass_values or guesses.fail_values or guesses.unknown:
        yield _beside(f"pass_values = {_list(guesses.pass_values)}", "what these texts mean in most tools")
        yield _beside(f"fail_values = {_list(guesses.fail_values)}", "any other text is rejected")
    if guesses.unknown:
        yield f"# Which of the two are these? {_line(', '.join(guesses.unknown))}"


def _beside(line: str, why: str) -> str:
    return f"{line:<{_WIDTH}} # {_line(why)}"


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(toml_text(name) for name in names)}]"


def _line(text: str) -> str:
    """One line, in which nothing can end the comment that it is."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
