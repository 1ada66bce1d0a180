"""What people read: summaries over seeds, comparisons, charts, one HTML page, the paper's tables and figures."""
