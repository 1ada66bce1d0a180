"""Many runs: found again, resumed or made; side by side, compared, or on Ray."""
