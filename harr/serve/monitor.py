"""A server's Prometheus metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.002, 0.005, 0.01, 0.015, 0.02, 0.025, 0.035, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Monitor:
    """The figures of one server."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._requests = Counter("harr_requests", "Answered requests", ["route", "status"], registry=registry)
        self._seconds = Histogram(
            "harr_request_seconds", "Time to the answer", ["route"], buckets=SECONDS, registry=registry
        )
        self.batch = Histogram("harr_batch_size", "Searches in a batch", buckets=SIZES, registry=registry)
        self.waiting = Gauge("harr_waiting", "Searches that wait", registry=registry)
        self._model = Gauge("harr_model", "1 for the version that answers", ["version"], registry=registry)
        self.changes = Gauge("harr_model_changes", "Versions that were taken over since the start", registry=registry)
        self.problem = Gauge("harr_follow_problem", "1 while the registry cannot be followed", registry=registry)
        self.passages = Gauge("harr_passages", "Passages that are searched", registry=registry)
        self._version = ""

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def version(self, version: str) -> None:
        """Set which version answers."""
        if version != self._version:
            self._model.clear()
            self._model.labels(version).set(1)
            self._version = version

    def text(self) -> bytes:
        """Return the figures in Prometheus's format."""
        return generate_latest(self.registry)
