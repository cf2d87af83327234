"""The version of the package, which partial counts, runs and workers record."""

__version__ = "0.1.0"
