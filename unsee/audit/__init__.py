"""Is it really forgotten? What the answers leak, how robust forgetting is, and what it did to the rest."""
