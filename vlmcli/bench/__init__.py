"""Benchmarks that compare in one run, on the same work: a table, and a last line of JSON."""
