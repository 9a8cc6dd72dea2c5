"""Object keys of one cluster in the archive, as a collector writes them."""

from __future__ import annotations

from dataclasses import dataclass

from ray_history.archive import layout
from ray_history.archive.layout import Cluster, MetricBlockKey
from ray_history.archive.stores import Store


@dataclass(frozen=True, slots=True)
class Destination:
    """A store and the cluster whose keys are written there, in generation C."""

    store: Store
    cluster: Cluster

    def marker(self, session: str) -> str:
        return layout.marker_key("", self.cluster, session)

    def event_file(self, session: str, node: str, job: str | None, created_ns: int) -> str:
        return layout.event_file_key(self._prefix(session), node, job, created_ns)

    def log(self, session: str, node: str, name: str) -> str:
        return layout.log_key(self._prefix(session), node, name)

    def endpoint(self, session: str, url: str) -> str:
        return layout.endpoint_key(self._prefix(session), url)

    def tail(self, session: str, node: str, sequence: int) -> str:
        return layout.tail_key("", self.cluster, session, node, sequence)

    def tails(self, session: str, node: str) -> str:
        return layout.join(layout.tails_prefix("", self.cluster, session), node)

    def ledger(self, session: str, node: str) -> str:
        return layout.ledger_key("", self.cluster, session, node)

    def journal(self, session: str, node: str, created_ns: int) -> str:
        return layout.journal_key("", self.cluster, session, node, created_ns)

    def journals(self, session: str) -> str:
        return layout.journals_prefix("", self.cluster, session)

    def metric_block(self, session: str, block: MetricBlockKey) -> str:
        return layout.metric_block_key("", self.cluster, session, block)

    def metric_dashboards(self, session: str) -> str:
        return layout.metric_dashboards_key("", self.cluster, session)

    def quarantine(self, name: str) -> str:
        return layout.quarantine_key("", self.cluster, name)

    def _prefix(self, session: str) -> str:
        return layout.session_prefix("", self.cluster, session)
