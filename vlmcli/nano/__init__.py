"""The built-in model as package data: a Hugging Face checkpoint and its draft head. No code."""
