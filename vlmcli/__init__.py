"""vlmcli: documents to text with vision-language models, on the command line.

Importing this package does no work: no torch, no PyMuPDF, no file access.
"""

__version__ = "0.1.0"

SCHEMA_VERSION = 1
"""Version of the page record and of everything that is stored under a content key."""
