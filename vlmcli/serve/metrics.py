"""The server's figures for Prometheus: requests, tokens, times, and the engine's counters."""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_BUCKETS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250)


class Metrics:
    """All figures of one server.

    Args:
        engine: gives the engine's counters by name.
    """

    def __init__(self, engine: Callable[[], Mapping[str, float]]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(_EngineCollector(engine))
        self.requests = Counter(
            "vlmcli_requests", "Requests by HTTP status.", ["status"], registry=self._registry
        )
        self.unfinished = Gauge(
            "vlmcli_requests_unfinished", "Taken, not yet answered.", registry=self._registry
        )
        self.prompt_tokens = Counter(
            "vlmcli_prompt_tokens", "Tokens of prompts, pictures too.", registry=self._registry
        )
        self.completion_tokens = Counter(
            "vlmcli_completion_tokens", "Tokens of answers.", registry=self._registry
        )
        self.seconds = Histogram(
            "vlmcli_request_seconds",
            "From a request's first byte to its answer's last.",
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.first_text_seconds = Histogram(
            "vlmcli_first_text_seconds",
            "From a request's first byte to its answer's first text.",
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def render(self) -> bytes:
        """The page that Prometheus fetches."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    """The engine's counters as they are when somebody looks."""

    def __init__(self, engine: Callable[[], Mapping[str, float]]) -> None:
        self._engine = engine

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """One gauge a counter; `drafts.ngram.right` becomes `vlmcli_engine_drafts_ngram_right`."""
        for name, value in sorted(self._engine().items()):
            safe = "".join(char if char.isalnum() else "_" for char in name)
            gauge = GaugeMetricFamily(f"vlmcli_engine_{safe}", f"Engine: {name}.")
            gauge.add_metric([], value)
            yield gauge
