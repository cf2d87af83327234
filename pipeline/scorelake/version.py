"""The version, below everything: partial counts, runs and workers are told apart by it."""

__version__ = "0.1.0"
