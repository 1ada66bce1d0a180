"""What finished runs say together: summaries over seeds, tables, charts, the report."""
