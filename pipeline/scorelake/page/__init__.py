"""The static page: one file that opens from disk or mail, from the published tables alone."""

from importlib import resources


def read_file(name: str) -> str:
    """Return a file of this package."""
    return (resources.files("scorelake.page") / name).read_text(encoding="utf-8")
