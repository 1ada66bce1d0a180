"""The paper's tables and figures: one TOML each with the paper's values, runner, rendering."""
