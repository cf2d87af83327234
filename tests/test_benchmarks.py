"""Benchmarks are not run by the tests; but what they ask of the job is there, with arguments that it takes."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import REPO

FILES = sorted((REPO / "benchmarks").glob("*.py"))


def imported(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """What a file takes from the job: module, name, and what it calls it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "scorelake":
            for each in node.names:
                yield node.module or "", each.name, each.asname or each.name


def found(module: str, name: str) -> Any:
    home = importlib.import_module(module)
    return getattr(home, name) if hasattr(home, name) else importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_benchmarks_ask_for_is_there(path: Path) -> None:
    tree = ast.parse(path.read_text())
    known = {called: found(module, name) for module, name, called in imported(tree)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and callable(known.get(node.func.id))):
            continue
        if any(isinstance(each, ast.Starred) for each in node.args) or any(
            each.arg is None for each in node.keywords
        ):
            continue
        signature = inspect.signature(known[node.func.id])
        signature.bind(*node.args, **{each.arg: each.value for each in node.keywords if each.arg})
