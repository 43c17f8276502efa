"""The command line: options, streams, progress, and where errors become exit codes."""
