"""Numbers for Prometheus: requests, times, queue length, how many requests a forward answers, and by client.

They are for the operator: on a port of their own, or with a key of role operate.
"""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import asdict
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, start_http_server

from unsee.errors import InputError
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
        self._by_client = Counter(
            "unsee_client_requests", "Requests by client and status.", ["client", "status"], registry=self._registry
        )
        self._charged = Counter(
            "unsee_charged", "What clients were charged.", ["client", "what"], registry=self._registry
        )
        self._page: WSGIServer | None = None
        self._waiting = Gauge("unsee_waiting", "Requests that wait for the model.", registry=self._registry)

    def request(self, scope: Scope, status: int, seconds: float) -> None:
        """Counts one request."""
        route = getattr(scope.get("route"), "path", "none")  # a path that no route has could be anything
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        state = scope.get("state", {})
        if "client" in state:
            name = state["client"].name
            self._by_client.labels(name, str(status)).inc()
            if "charged" in state:
                for what, count in asdict(state["charged"]).items():
                    self._charged.labels(name, what).inc(count)

    def merged(self, requests: int) -> None:
        """Counts one forward."""
        self._merged.observe(requests)

    def watch_queue(self, queue: Sized) -> None:
        self._waiting.set_function(lambda: len(queue))

    def listen(self, host: str, port: int) -> int:
        """Serves them on a port of their own; -> which."""
        try:
            self._page, _ = start_http_server(port, host, self._registry)
        except OSError as error:
            raise InputError(f"cannot listen on {host} port {port}: {error.strerror}") from None
        return int(self._page.server_port)

    def close(self) -> None:
        if self._page is not None:
            self._page.shutdown()
            self._page.server_close()

    def page(self) -> bytes:
        """As Prometheus reads it."""
        return generate_latest(self._registry)
