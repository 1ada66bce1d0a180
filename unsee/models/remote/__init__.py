"""A model behind a service: HTTP, retries, the wire format."""
