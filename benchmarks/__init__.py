"""Measurements that take minutes: what the paper costs, and that all of it runs."""
