"""Is it really forgotten? What answers still tell, how robust forgetting is, and what it did to the rest."""
