"""The paper's tables and figures: what they are made of, how they are made again, how they are shown."""
