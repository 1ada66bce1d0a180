"""Models that `transformers` and `open_clip` run."""
