"""Speed, measured side by side: one candidate, families of models, the service under load."""
