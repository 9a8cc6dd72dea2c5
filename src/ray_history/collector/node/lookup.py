"""Asks the head for the id of the node with this pod's address, if no file of Ray shows it.

This is the last resort, for Ray versions with unknown files: one small, filtered request, at most every 30 seconds, so
that a thousand nodes do not overload their head.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlencode

import msgspec

from ray_history.collector.polling.dashboard_client import DEFAULT_PORT, Dashboard, DashboardError, dashboard_url
from ray_history.decoding import DECODING_ERRORS

logger = logging.getLogger(__name__)

_INTERVAL = 30.0
_TIMEOUT = 3.0


class _Row(msgspec.Struct):
    node_id: str = ""
    state: str = ""


class _Rows(msgspec.Struct):
    result: list[_Row] = []


class _Data(msgspec.Struct):
    result: _Rows


class _Answer(msgspec.Struct):
    data: _Data


class NodeLookup:
    """Uses `FQ_RAY_IP` as the address of the head and `POD_IP` as that of this node, as KubeRay sets them."""

    def __init__(self, environ: Mapping[str, str], token: Callable[[], str | None]) -> None:
        head, self._address = environ.get("FQ_RAY_IP", "").strip(), environ.get("POD_IP", "").strip()
        port = environ.get("RAY_DASHBOARD_PORT", "").strip()
        self._dashboard: Dashboard | None = None
        if head and self._address:
            self._dashboard = Dashboard(dashboard_url(head, int(port) if port.isdigit() else DEFAULT_PORT), token)
        self._requested = float("-inf")

    def __call__(self) -> str | None:
        """The id of the living node with this address; None without answer, or shortly after the last request."""
        if self._dashboard is None or time.monotonic() - self._requested < _INTERVAL:
            return None
        self._requested = time.monotonic()
        condition = {"filter_keys": "node_ip", "filter_predicates": "=", "filter_values": self._address}
        try:
            answer = self._dashboard.get(f"/api/v0/nodes?{urlencode({'limit': 100, **condition})}", timeout=_TIMEOUT)
            rows = msgspec.json.decode(answer.body, type=_Answer).data.result.result
        except (DashboardError, *DECODING_ERRORS) as error:
            logger.debug("cannot look up the id of this node: %s", error)
            return None
        return next((row.node_id.lower() for row in rows if row.state == "ALIVE" and row.node_id), None)
