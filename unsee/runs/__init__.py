"""A run as a folder: its records, identity, prompt, evaluation and picture."""
