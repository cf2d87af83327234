"""Write inferred settings as a config with a comment on every line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scorelake.lake.infer import InferredConfig
from scorelake.lake.sample import Column
from scorelake.text import toml_text


def config_text(inferred: InferredConfig, lake: str) -> str:
    """Return the text of a scorelake.toml."""
    return "\n".join(_lines(inferred, lake)) + "\n"


def _lines(inferred: InferredConfig, lake: str) -> Iterator[str]:
    yield f"# Inferred by `scorelake init` from some rows of {_one_line(lake)}. Review it before you use it."
    yield from ("", "[columns]")
    for key, choice in inferred.columns.items():
        if choice.column is not None:
            yield _line(f"{key} = {toml_text(choice.column)}", choice.why)
        else:
            yield _line(f'# {key} = "..."', f"{'MISSING: ' * (key in inferred.missing)}{choice.why}")
        if key == "passed" and (inferred.pass_values or inferred.fail_values or inferred.unknown):
            yield _line(f"pass_values = {_list(inferred.pass_values)}", "meaning of these texts in most tools")
            yield _line(f"fail_values = {_list(inferred.fail_values)}", "any other text is rejected")
            if inferred.unknown:
                yield f"# Pass or fail? {_one_line(', '.join(inferred.unknown))}"
    if inferred.carry:
        yield _columns("carry", inferred.carry, "kept with each problem")
    if inferred.protocol:
        yield from ("", "[protocol]", _columns("columns", inferred.protocol, "different values are never pooled"))
    if inferred.no_attempts:
        yield from ("", "[duplicates]", _line('policy = "off"', "attempt does not identify attempts, see above"))
    if inferred.columns["passed"].column is None and inferred.columns["score"].column is not None:
        why = "scores from here on pass; without a threshold there is no pass@k"
        yield from ("", "[policy]", _line("# pass_threshold = 0.5", why))


def _columns(key: str, columns: Iterable[Column], why: str) -> str:
    details = "; ".join(f"{column.name}: {column.summary}" for column in columns)
    return _line(f"{key} = {_list(column.name for column in columns)}", f"{why}; {details}")


def _line(setting: str, why: str) -> str:
    return f"{setting:<34} # {_one_line(why)}"


def _list(names: Iterable[str]) -> str:
    return f"[{', '.join(toml_text(name) for name in names)}]"


def _one_line(text: str) -> str:
    """Replace control characters, so that the text cannot end its comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
