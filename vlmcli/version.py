"""The two constants that anything may need: of the program, and of what it stores."""

__version__ = "0.1.0"

SCHEMA_VERSION = 1
"""Version of the page record and of everything that is stored under a content key."""
