"""Errors travel between machines as what they are."""

import pickle

import pytest

from scorelake import errors
from scorelake.errors import DataError, listed


def leaves(kind: type[errors.ScorelakeError]) -> list[type[errors.ScorelakeError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]


@pytest.mark.parametrize("kind", leaves(errors.ScorelakeError))
def test_pickled(kind: type[errors.ScorelakeError]) -> None:
    error = kind("what", where="where", hint="hint")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.exit_code) == ("where: what\n  hint: hint", kind.exit_code)


def test_a_name_adds_no_line_of_its_own() -> None:
    error = DataError("broken" + listed([("a\n  hint: remove all", "b\n  c")]), where="x\n  hint: y", hint="z")
    assert str(DataError("no model a\n  hint: forged")) == "no model a\\n  hint: forged"
    assert str(error) == "x\\n  hint: y: broken\n  a\\n  hint: remove all: b\\n  c\n  hint: z"
