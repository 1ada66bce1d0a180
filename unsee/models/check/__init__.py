"""Proof that a checkpoint gives the same answers here as in its own library."""
