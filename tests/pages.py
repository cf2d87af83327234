"""The commands that the README and docs/ show, and what they print. `make docs` writes what they print now.

A session is what the console blocks of one page show: commands after `$ `, continued after `> `, and below each what
it prints to stdout. A last line `...` stands for any more, and a command with nothing below it may print anything.
Errors are shown with `2>&1; echo exit $?` in the command.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from conftest import REPO, call

PAGES = {
    str(path.relative_to(REPO)): path.read_text()
    for path in (REPO / "README.md", *sorted((REPO / "docs").glob("*.md")))
}
FIRST = "scorelake score fixtures/lake --out out"
"""The README's first command. The sessions of all pages start where it ended."""
_BLOCK = re.compile(r"```console\n(.*?)```", flags=re.DOTALL)
_COMMAND = re.compile(r"^\$ .*\n(?:(?!\$ ).*\n)*", flags=re.MULTILINE)


def blocks(page: str, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGES[page], flags=re.DOTALL)


def sessions(page: str) -> list[tuple[str, list[str]]]:
    """Every command of a page and the lines shown below it."""
    return [_parts(lines)[1:] for block in _BLOCK.findall(PAGES[page]) for lines in _COMMAND.findall(block)]


def _parts(lines: str) -> tuple[list[str], str, list[str]]:
    """The lines of a command as they are, the command, and the lines shown."""
    first, *rest = lines.splitlines()
    more = next((at for at, line in enumerate(rest) if not line.startswith("> ")), len(rest))
    head = [first, *rest[:more]]
    return head, "\n".join(line[2:] for line in head), bare(rest[more:])


def bare(lines: list[str]) -> list[str]:
    """Without spaces at the ends of lines and without empty lines at the end."""
    return "\n".join(line.rstrip() for line in lines).rstrip("\n").splitlines()


def run(command: str, folder: Path) -> list[str]:
    """Return what a command prints to stdout; it must succeed. Without shell syntax it runs in this process."""
    plain = command.replace("\\\n", "").removesuffix(" 2>/dev/null")
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    if words[0] == "scorelake" and not any(set(word) <= set("();<>|&") for word in words):
        done = call(*words[1:], cwd=folder)
    else:
        env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        bash = ["bash", "-c", command]
        done = subprocess.run(bash, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return bare(done.stdout.splitlines())


def scored(folder: Path) -> Path:
    """A folder with the bundled lake, scored."""
    shutil.copytree(REPO / "fixtures", folder / "fixtures")
    run(FIRST, folder)
    return folder


def refreshed(page: str, printed: Callable[[str], list[str]]) -> str:
    """The page with what its commands print now."""

    def again(found: re.Match[str]) -> str:
        head, command, shown = _parts(found[0])
        lines = printed(command)
        if shown[-1:] == ["..."]:
            lines = [*lines[: len(shown) - 1], "..."]
        return "".join(f"{line}\n" for line in [*head, *(lines if shown else [])])

    return _BLOCK.sub(lambda block: f"```console\n{_COMMAND.sub(again, block[1])}```", PAGES[page])


def main() -> None:
    """Write all pages, or those given."""
    for page in sys.argv[1:] or PAGES:
        if sessions(page):
            with TemporaryDirectory() as folder:
                home = scored(Path(folder) / "session")
                text = refreshed(page, lambda command, home=home: run(command, home))  # type: ignore[misc]
            (REPO / page).write_text(text)


if __name__ == "__main__":
    main()
