"""The inference engine: requests in, tokens out. Importing this package loads no torch."""
