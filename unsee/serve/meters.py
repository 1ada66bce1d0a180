"""Numbers for Prometheus: requests, times, queue length, how many requests a forward answers. No client is named."""

from __future__ import annotations

from collections.abc import Sized

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from unsee.serve.guard import Scope

MERGED = (1, 2, 4, 8, 16, 32, 64)


class Meters:
    """The service's own registry, so that two services in one process do not mix."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "unsee_requests", "Requests by route and status.", ["route", "status"], registry=self._registry
        )
        self._seconds = Histogram("unsee_seconds", "Seconds to answer, by route.", ["route"], registry=self._registry)
        self._merged = Histogram(
            "unsee_merged", "Requests answered by one forward.", buckets=MERGED, registry=self._registry
        )
        self._waiting = Gauge("unsee_waiting", "Requests that wait for the model.", registry=self._registry)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts one request."""
        route = getattr(scope.get("route"), "path", "none")  # a path that no route has could be anything
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def merged(self, requests: int) -> None:
        """Counts one forward."""
        self._merged.observe(requests)

    def watch_queue(self, queue: Sized) -> None:
        self._waiting.set_function(lambda: len(queue))

    def page(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)
