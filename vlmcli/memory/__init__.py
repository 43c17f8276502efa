"""How much memory a job takes, from page sizes and model shapes alone: no torch, no rendering."""
