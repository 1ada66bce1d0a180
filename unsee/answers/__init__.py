"""Confidences in, measures out: scores, rules for what leaves, intervals, a picture. Pure functions."""
