"""How good a text is, against another that is taken for true. Texts and numbers; no models."""
