"""One decoder, one vision block, a small file per model family. Importing this loads no torch."""
