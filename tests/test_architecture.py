"""The walls between the rooms: who may import whom, who may use which library, and how long a thing may be.

An ast walk over the sources, so that imports inside functions, under TYPE_CHECKING and by a module's name in a text
are seen as well. Every wall has an example below that breaks it, to show that the walk would notice.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeGuard

import pytest

from conftest import REPO

HOME = REPO / "pipeline" / "scorelake"

LAYERS = (
    ("errors", "threads", "version", "text", "hashing"),
    ("settings", "schemas", "metrics", "guard"),
    ("storage",),
    ("lake", "counting", "scoring", "engines", "ingest", "synth"),
    ("comparing", "gates", "publish"),
    ("tasks",),
    ("stages",),
    ("pipeline", "read"),
    ("page",),
    ("notebook",),
    ("__init__",),
    ("reporting",),
    ("cli",),
    ("__main__",),
)
"""Rooms from the lowest layer to the highest. Each imports lower layers only; rooms of one layer never each other."""

LIBRARIES = {
    "duckdb": ("publish.leaderboard", "read"),
    "obstore": ("storage",),
    "deltalake": ("lake.delta",),
    "pyiceberg": ("lake.iceberg",),
    "ray": ("engines",),
    "typer": ("cli",),
    "click": ("cli",),
    "rich": ("reporting", "read.show"),
}
"""Rooms or modules that may import a library; of a library that is not here, all may."""
ONLY = {"metrics": ("numpy", "scipy")}
"""Rooms that may import no other library than these."""
APART = {"counting": ("storage.objects", "storage.mirror", "lake.download")}
"""Modules of lower layers that a room must not know all the same: who counts or merges sees files on a disk."""
PRINTING = ("cli", "reporting")

LONGEST_FILE, LONGEST_FUNCTION = 400, 50
LONG_FILES: dict[str, int] = {}
LONG_FUNCTIONS = {"cli.lakes.score": 55, "read.check._create_attempts": 57}
"""What is longer, and how long it may be at most. These lists may only shrink."""

LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


@dataclass(frozen=True)
class Module:
    """One source file; its name is without the package's, such as store.disk."""

    name: str
    text: str

    @property
    def room(self) -> str:
        return self.name.split(".", maxsplit=1)[0]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    def imports(self) -> Iterator[tuple[int, str]]:
        """Line and full name of everything imported, names inside modules included."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name}:{node.lineno}: a relative import: say the whole name"
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
            elif isinstance(node, ast.Constant) and _names_a_module(node.value):
                yield node.lineno, node.value

    def bound(self) -> dict[str, str]:
        """Names that imports bind, and what to."""
        out: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                tops = {alias.name.split(".")[0] for alias in node.names if not alias.asname}
                out |= {top: top for top in tops} | {a.asname: a.name for a in node.names if a.asname}
            elif isinstance(node, ast.ImportFrom):
                out |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        return out

    def own(self) -> set[str]:
        """Names that are defined here, attributes of objects included."""
        out = set()
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                out.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                out.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
                out.add(node.attr)
        return out


@cache
def everything() -> dict[str, Module]:
    """Every module, by its name."""
    out = {}
    for path in sorted(HOME.rglob("*.py")):
        parts = path.relative_to(HOME).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)
        out[name] = Module(name, path.read_text(encoding="utf-8"))
    return out


def broken(module: Module) -> list[str]:
    """What breaks a wall in a module, line by line."""
    rules = (_layers, _apart, _libraries, _private, _printing)
    return sorted(f"{module.name}:{line}: {what}" for rule in rules for line, what in rule(module))


def _layers(module: Module) -> Iterator[tuple[int, str]]:
    for line, full in module.imports():
        if full.split(".")[0] != "scorelake":
            continue
        inside = full.removeprefix("scorelake").removeprefix(".")
        room = inside.split(".", maxsplit=1)[0]
        if room not in LEVEL:
            room = "__init__"  # a name of the package itself
        if room == module.room:
            continue
        if LEVEL[room] >= LEVEL[module.room]:
            which = "a sibling" if LEVEL[room] == LEVEL[module.room] else "a higher layer"
            yield line, f"imports {full}: {room} is {which}"


def _apart(module: Module) -> Iterator[tuple[int, str]]:
    for line, full in module.imports():
        for other in APART.get(module.room, ()):
            if f"{full}.".startswith(f"scorelake.{other}."):
                yield line, f"imports {full}, which {module.room} must not know"


def _libraries(module: Module) -> Iterator[tuple[int, str]]:
    for line, full in module.imports():
        library = full.split(".", maxsplit=1)[0]
        if library == "scorelake" or library in sys.stdlib_module_names:
            continue
        homes = LIBRARIES.get(library)
        if homes is not None and not any(f"{module.name}.".startswith(f"{home}.") for home in homes):
            yield line, f"imports {library}, which belongs into {' and '.join(homes)}"
        if library not in ONLY.get(module.room, (library,)):
            yield line, f"imports {library}, where only {' and '.join(ONLY[module.room])} may be"


def _private(module: Module) -> Iterator[tuple[int, str]]:
    """Private names of other modules: imported, reached through a module, or through an object of another's class."""
    bound, own = module.bound(), module.own()
    for line, full in module.imports():
        if full.startswith("scorelake.") and any(_is_private(part) for part in full.split(".")):
            yield line, f"imports {full}, which is private"
    for node in module.nodes:
        if not isinstance(node, ast.Attribute) or not _is_private(node.attr) or _is_self(node.value):
            continue
        source = bound.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if source.startswith("scorelake") if source else node.attr not in own:
            yield node.lineno, f"uses .{node.attr}, which is private to another module"


def _printing(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        if isinstance(node, ast.Name) and node.id == "print" and module.room not in PRINTING:
            yield node.lineno, f"prints, which only {' and '.join(PRINTING)} do"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _names_a_module(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and re.fullmatch(r"scorelake(\.(?!toml$)[a-z_0-9]+)+", value) is not None


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def functions(module: Module) -> dict[str, int]:
    """Lines of every function, from its def to its end; of several with one name, the longest's."""
    out: dict[str, int] = {}
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{module.name}.{node.name}"
            out[name] = max(out.get(name, 0), (node.end_lineno or 0) - node.lineno + 1)
    return out


def too_long(found: dict[str, int], limit: int, listed: dict[str, int]) -> list[str]:
    """What is longer than it may be, and entries of the list that are not needed."""
    allowed = {name: listed.get(name, limit) for name in found}
    over = [name for name in found if found[name] > allowed[name]]
    needless = [name for name in listed if found.get(name, 0) <= limit]
    return [
        *(f"{name} has {found[name]} lines, at most {allowed[name]} may be" for name in over),
        *(f"{name} is on the list and need not be" for name in needless),
    ]


# --- the sources ----------------------------------------------------------------------------------------------


def test_every_module_has_a_layer() -> None:
    unknown = {module.room for module in everything().values()} - set(LEVEL)
    assert not unknown, f"say in LAYERS where {', '.join(sorted(unknown))} belongs"


@pytest.mark.slow
def test_the_walls_stand() -> None:
    found = [line for module in everything().values() for line in broken(module)]
    assert not found, "\n" + "\n".join(found)


def test_nothing_is_too_long() -> None:
    files = {module.name: module.text.count("\n") for module in everything().values()}
    lines = {name: many for module in everything().values() for name, many in functions(module).items()}
    found = too_long(files, LONGEST_FILE, LONG_FILES) + too_long(lines, LONGEST_FUNCTION, LONG_FUNCTIONS)
    assert not found, "\n" + "\n".join(found)


def test_a_module_named_in_a_text_is_there() -> None:
    """Workers are told by name what to load; nobody else would notice that it is called otherwise now."""
    for module in everything().values():
        texts = [
            node.value for node in module.nodes if isinstance(node, ast.Constant) and _names_a_module(node.value)
        ]
        gone = [text for text in texts if text.removeprefix("scorelake.") not in everything()]
        assert not gone, f"{module.name} names {', '.join(gone)}"


# --- would it notice? -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("storage.disk", "from scorelake.lake import shards", "a higher layer"),
        ("storage.disk", "import scorelake.pipeline", "a higher layer"),
        ("scoring.values", "from scorelake.comparing.boards import Board", "a higher layer"),
        ("gates", "from scorelake import comparing", "a sibling"),
        ("gates", "def f():\n    from scorelake.publish import Partial", "a sibling"),
        ("gates", "if TYPE_CHECKING:\n    from scorelake.publish import Partial", "a sibling"),
        ("engines.ray", 'def f():\n    import_module("scorelake.pipeline")', "a higher layer"),
        ("pipeline", "from scorelake import __version__", "a higher layer"),
        ("reporting", "from scorelake import cli", "a higher layer"),
        ("storage.files", "from scorelake.counting.query import HASH", "a higher layer"),
        ("counting.merge", "from scorelake.scoring.survey import Survey", "a sibling"),
        ("counting.shard", "from scorelake import tasks", "a higher layer"),
        ("tasks", "from scorelake.pipeline import score_lake", "a higher layer"),
        ("counting.shard", "from scorelake.storage.objects import Objects", "must not know"),
        ("counting.shard", "def f():\n    import scorelake.storage.mirror", "must not know"),
        ("counting.merge", "from scorelake.storage import mirror", "must not know"),
        ("counting.merge", "if TYPE_CHECKING:\n    from scorelake.storage.mirror import Mirror", "must not know"),
        ("counting.merge", "from scorelake.lake.download import local_copy", "must not know"),
        ("publish.snapshot", "import duckdb", "belongs into publish.leaderboard and read"),
        ("publish.leaderboards", "import duckdb", "belongs into publish.leaderboard and read"),
        ("lake.listing", "def f():\n    from obstore.store import S3Store", "belongs into storage"),
        ("pipeline", "import ray", "belongs into engines"),
        ("lake.listing", "def f():\n    from deltalake import DeltaTable", "belongs into lake.delta"),
        ("read.check", "from pyiceberg.table import StaticTable", "belongs into lake.iceberg"),
        ("reporting", "import typer", "belongs into cli"),
        ("read.session", "from rich.table import Table", "belongs into reporting and read.show"),
        ("metrics.vote", "import polars as pl", "only numpy and scipy"),
        ("read.check", "from scorelake.publish.leaderboard import _quoted", "is private"),
        ("read.check", "from scorelake.publish import leaderboard as l\nl._quoted('')", "is private to another"),
        ("read.check", "def f(out):\n    return out.mirror._there", "is private to another"),
        ("read.show", "print('hello')", "only cli and reporting"),
        ("read.show", "parallel_map(print, [])", "only cli and reporting"),
    ],
)
def test_a_broken_wall_is_noticed(name: str, text: str, says: str) -> None:
    assert any(says in line for line in broken(Module(name, text))), broken(Module(name, text))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("storage.mirror", "from scorelake.storage.disk import beside\nfrom scorelake.errors import LakeError"),
        ("read.check", "import duckdb\nfrom scorelake.publish import leaderboard"),
        ("counting.shard", "import numpy\nfrom scorelake.storage import disk, objects_of_another_name"),
        ("tasks", "from scorelake.storage.mirror import Mirror\nfrom scorelake.lake.download import local_copy"),
        (
            "cli",
            "import typer, atexit\nfrom scorelake import __version__, reporting\natexit._run_exitfuncs()\nprint(1)",
        ),
        ("storage.mirror", "class A:\n    def _b(self): ...\ndef f(a: A): a._b()"),
        ("metrics.vote", "import numpy as np\nfrom scipy import special\nimport math"),
    ],
)
def test_what_is_allowed_is_not_refused(name: str, text: str) -> None:
    assert broken(Module(name, text)) == []


def test_length_is_noticed() -> None:
    long = Module("run", "def f():\n" + "    pass\n" * 60)
    assert too_long(functions(long), 50, {}) == ["run.f has 61 lines, at most 50 may be"]
    assert too_long(functions(long), 50, {"run.f": 60}) == ["run.f has 61 lines, at most 60 may be"]
    assert too_long(functions(long), 50, {"run.f": 61}) == []
    assert too_long(functions(long), 70, {"run.f": 61}) == ["run.f is on the list and need not be"]
    assert too_long({}, 50, {"run.gone": 61}) == ["run.gone is on the list and need not be"]
