"""scorelake: from a lake of evaluation attempts to score tables."""

__version__ = "0.1.0"
