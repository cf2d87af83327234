"""Import rules: which module may import which, and which library; and how long files and functions may be.

An ast walk over the sources, so that imports inside functions, under TYPE_CHECKING and by a module's name in a text
are seen as well. Ruff checks that nothing prints (T20) or uses private attributes of others (SLF).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator

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
"""Modules and packages from the lowest layer to the highest. Each imports lower layers only, never its own."""

LIBRARIES = {
    "duckdb": ("publish.leaderboard", "read", "lake.ducklake"),
    "obstore": ("storage",),
    "deltalake": ("lake.delta",),
    "pyiceberg": ("lake.iceberg", "lake.tables"),
    "ray": ("engines",),
    "psycopg": ("read.postgres", "lake.ducklake"),
    "typer": ("cli",),
    "click": ("cli",),
    "rich": ("reporting", "read.show"),
}
"""Modules that may import a library; all may import a library that is not listed."""
ONLY = {"metrics": ("numpy", "scipy")}
"""Packages that may import no other library than these."""
APART = {"counting": ("storage.objects", "storage.mirror", "lake.download")}
"""Modules of lower layers that a package must not import all the same: counting and merging see files on a disk."""

LONGEST_FILE, LONGEST_FUNCTION = 400, 50
LONG_FILES: dict[str, int] = {"schemas": 560, "settings": 450}  # lists of columns and of settings
LONG_FUNCTIONS: dict[str, int] = {}
"""What is longer, and how long it may be at most. These lists may only shrink."""

LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
NAMED = re.compile(r"scorelake(?:\.(?!toml\b)[a-z_0-9]+)+")
SOURCES = {
    ".".join(path.relative_to(HOME).with_suffix("").parts).removesuffix(".__init__"): path.read_text(encoding="utf-8")
    for path in sorted(HOME.rglob("*.py"))
}


def imports(text: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported, names inside modules included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Constant) and NAMED.fullmatch(str(node.value)):
            yield node.lineno, node.value


def is_within(name: str, modules: tuple[str, ...]) -> bool:
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def broken_rules(module: str, text: str) -> list[str]:
    package = module.split(".", maxsplit=1)[0]
    return [f"{module}:{line}: {rule}" for line, name in imports(text) for rule in _broken(module, package, name)]


def _broken(module: str, package: str, name: str) -> Iterator[str]:
    library, _, inside = name.partition(".")
    if library == "scorelake":
        other = inside.split(".", maxsplit=1)[0]
        other = other if other in LEVEL else "__init__"  # a name of the package itself
        if other != package and LEVEL[other] >= LEVEL[package]:
            which = "the same layer" if LEVEL[other] == LEVEL[package] else "a higher layer"
            yield f"imports {name}: {other} is in {which}"
        if is_within(inside, APART.get(package, ())):
            yield f"imports {name}, which {package} must not import"
        if re.search(r"\._(?!_)", name):
            yield f"imports {name}, which is private"
    elif library not in sys.stdlib_module_names:
        if not is_within(module, LIBRARIES.get(library, (module,))):
            yield f"imports {library}, which only {' and '.join(LIBRARIES[library])} may import"
        if library not in ONLY.get(package, (library,)):
            yield f"imports {library}; {package} may import only {' and '.join(ONLY[package])}"


def test_every_module_has_a_layer() -> None:
    assert {name.split(".")[0] for name in SOURCES} <= set(LEVEL)


def test_imports_follow_the_layers() -> None:
    found = [line for name, text in SOURCES.items() for line in broken_rules(name, text)]
    assert not found, "\n" + "\n".join(found)


def test_files_and_functions_are_short() -> None:
    """Exceptions are listed with their length, and only where they are needed."""
    files = {name: text.count("\n") for name, text in SOURCES.items()}
    lines: dict[str, int] = {}
    for name, text in SOURCES.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function, length = f"{name}.{node.name}", (node.end_lineno or 0) - node.lineno + 1
                lines[function] = max(lines.get(function, 0), length)
    for found, limit, listed in ((files, LONGEST_FILE, LONG_FILES), (lines, LONGEST_FUNCTION, LONG_FUNCTIONS)):
        assert {name: length for name, length in found.items() if length > listed.get(name, limit)} == {}
        assert [name for name in listed if found.get(name, 0) <= limit] == []


def test_a_module_named_in_a_text_exists() -> None:
    """Workers load modules by name; no other test would notice that one was renamed."""
    texts = [name for text in SOURCES.values() for name in re.findall(f'"({NAMED.pattern})"', text)]
    assert [name for name in texts if name.removeprefix("scorelake.") not in SOURCES] == []


@pytest.mark.parametrize(
    ("module", "text", "rule"),
    [
        ("storage.disk", "import scorelake.pipeline", "a higher layer"),
        ("gates", "def f():\n    from scorelake.publish import Partial", "the same layer"),
        ("gates", "if TYPE_CHECKING:\n    from scorelake import comparing", "the same layer"),
        ("engines.ray", 'def f():\n    import_module("scorelake.pipeline")', "a higher layer"),
        ("pipeline", "from scorelake import __version__", "a higher layer"),
        ("counting.shard", "from scorelake.storage.objects import Objects", "must not import"),
        ("counting.merge", "from scorelake.storage import mirror", "must not import"),
        ("publish.leaderboards", "import duckdb", "only publish.leaderboard and read and lake.ducklake may"),
        ("lake.listing", "def f():\n    from obstore.store import S3Store", "only storage may"),
        ("metrics.vote", "import polars as pl", "only numpy and scipy"),
        ("read.check", "from scorelake.publish.leaderboard import _quoted", "is private"),
        ("storage.mirror", "from scorelake.storage.disk import beside\nfrom scorelake.errors import LakeError", None),
        ("counting.shard", "import numpy\nfrom scorelake.storage import disk, objects_of_another_name", None),
        ("cli", "import typer, atexit\nfrom scorelake import __version__, reporting", None),
        ("metrics.vote", "import numpy as np\nfrom scipy import special\nimport math", None),
    ],
)
def test_a_broken_rule_is_noticed(module: str, text: str, rule: str | None) -> None:
    found = broken_rules(module, text)
    assert any(rule in line for line in found) if rule else found == []
