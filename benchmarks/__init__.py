"""Measurements behind choices in the code; each prints what the documentation quotes."""
