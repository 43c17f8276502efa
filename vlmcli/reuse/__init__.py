"""What was read before need not be read again: fingerprints, proofs, decisions, the store."""
