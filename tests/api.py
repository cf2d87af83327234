"""docs/api.md from docstrings, and docs/notebook.ipynb with what its cells show now. `make docs` writes both.

The examples of the page are one session in its order, in a folder with the bundled fixtures.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import chdir
from doctest import ELLIPSIS, DocTest, DocTestParser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient

import scorelake as sl
from scorelake.notebook.plots import Plots

REPO = Path(__file__).parents[1]
PAGE, NOTEBOOK = REPO / "docs" / "api.md", REPO / "docs" / "notebook.ipynb"
FLAGS = ELLIPSIS
_TITLE = """# In a notebook: the Python API

Made from docstrings by `make docs`; every example runs as a test. [notebook.ipynb](notebook.ipynb) is the same as a
story, and [migrating.md](migrating.md) lists the calls that replace functions of scorio and eval-framework.
"""


def entries() -> Iterator[tuple[str, Any]]:
    """What the page tells about: a heading, and the thing."""
    yield "scorelake", sl
    yield "scorelake.score", sl.score
    yield "scorelake.Board", sl.Board
    for name, thing in vars(sl.Board).items():
        if not name.startswith("_") and thing.__doc__:
            yield f"Board.{name}", thing
    for name, thing in vars(Plots).items():
        if not name.startswith("_") and callable(thing):
            yield f"Board.plot.{name}", thing
    yield "scorelake.Comparison", sl.Comparison
    yield "Comparison.frame", sl.Comparison.frame
    yield "scorelake.Drawing", sl.Drawing
    yield "scorelake.open", sl.open
    yield "scorelake.gate", sl.gate
    yield "scorelake.plan", sl.plan
    yield "scorelake.metrics", sl.metrics
    for name in sl.metrics.__all__:
        yield f"scorelake.metrics.{name}", getattr(sl.metrics, name)


def page() -> str:
    """The whole page, its Python laid out as everywhere."""
    text = _TITLE + "".join(f"\n{_entry(name, thing)}" for name, thing in entries())
    ruff = [str(Path(sys.executable).parent / "ruff"), "format", "--stdin-filename", str(PAGE), "-"]
    return subprocess.run(ruff, input=text, cwd=REPO, capture_output=True, text=True, check=True).stdout


def _entry(name: str, thing: Any) -> str:
    text, *examples = re.split(r"(?m)^(?=>>> )", inspect.cleandoc(thing.__doc__), maxsplit=1)
    text = re.sub(r"(?ms)^In a notebook:\n\n(.*?)\n\n(?=\S)", _code, text)
    body = "\n\n".join([_signature(thing), _sections(text)]).strip()
    session = f"\n\n```pycon\n{examples[0].rstrip()}\n```" if examples else ""
    level = "##" if name.startswith("scorelake") else "###"
    return f"{level} `{name}`\n\n{body}{session}\n"


def _code(found: re.Match[str]) -> str:
    return f"```python\n{textwrap.dedent(found[1])}\n```\n\n"


def _sections(text: str) -> str:
    """Return a numpydoc docstring as Markdown: its sections as lists."""
    summary, *rest = re.split(r"(?m)^(\w+)\n-+\n", text)
    out = [summary.strip()]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        if title != "Examples":
            out.append(f"**{title}**\n\n" + "\n".join(map(_item, re.split(r"\n(?=\S)", body.strip()))))
    return "\n\n".join(out)


def _item(text: str) -> str:
    head, _, about = text.partition("\n")
    line = f"- `{head}`" + (f": {' '.join(about.split())}" if about else "")
    return "\n".join(textwrap.wrap(line, 140, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))


def _signature(thing: Any) -> str:
    """How it is called, as Python would define it."""
    if inspect.ismodule(thing) or inspect.isclass(thing) or isinstance(thing, property):
        return ""
    written = inspect.signature(thing)
    kept = [parameter for parameter in written.parameters.values() if parameter.name != "self"]
    line = re.sub(r"(: |-> )'([^']*)'", r"\1\2", f"def {thing.__name__}{written.replace(parameters=kept)}: ...")
    if len(line) > 110:
        start, end = line.index("(") + 1, line.rindex(") ->")
        inside = "".join(f"    {argument},\n" for argument in re.split(r", (?=\*|[a-zA-Z_0-9]+: )", line[start:end]))
        line = f"{line[:start]}\n{inside}{line[end:]}"
    return f"```python\n{line}\n```"


def examples() -> list[DocTest]:
    """The examples of every entry, with the line where each is in the page's order."""
    parser, shared = DocTestParser(), dict[str, Any]()
    found = [(name, inspect.cleandoc(thing.__doc__)) for name, thing in entries()]
    tests = [parser.get_doctest(text, {}, name, None, 0) for name, text in found if ">>> " in text]
    for test in tests:
        test.globs = shared
    return tests


def source() -> str:
    """The examples as one program, for type checkers."""
    return "".join(example.source for test in examples() for example in test.examples)


def executed(home: Path) -> nbformat.NotebookNode:
    """The notebook with what its cells show when it runs in a folder with the fixtures."""
    book = nbformat.read(NOTEBOOK, as_version=4)
    os.environ["PYTHONPATH"] = str(REPO / "pipeline")
    asyncio.run(_run(book, home))
    for cell in book.cells:
        cell.metadata = nbformat.NotebookNode()
    book.metadata.language_info = nbformat.from_dict({"name": "python"})
    return book


async def _run(book: nbformat.NotebookNode, home: Path) -> None:
    await NotebookClient(book, timeout=120, resources={"metadata": {"path": str(home)}}).async_execute()


def prepared(home: Path) -> Path:
    """A folder with the fixtures."""
    shutil.copytree(REPO / "fixtures", home / "fixtures")
    return home


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    with TemporaryDirectory() as home:
        book = executed(prepared(Path(home)))
    nbformat.write(book, NOTEBOOK)


if __name__ == "__main__":
    with chdir(REPO):
        main()
