"""scorelake: from a lake of evaluation attempts to score tables."""

from scorelake.version import __version__

__all__ = ["__version__"]
