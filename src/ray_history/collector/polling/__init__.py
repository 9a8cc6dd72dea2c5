"""Keeps the dashboard state that Ray's events do not carry, as the answers a later reader will ask for again.

Invariants:
* an answer is stored under the URL that Ray's frontend and SDK ask, as it came (env_vars are redacted when served);
* only the thread that runs the cycle decides and remembers; the pool's threads ask and store, nothing else;
* what arrives after the deadline or after `stop()` is not stored, and at most four bodies are held at a time;
* an empty answer never replaces a full one while the cluster may be dying (`Empties` says when it does);
* what runs a task inside the user's job (Ray Data, Ray Train) is asked rarely, and only while the actor that would
  answer is alive: `/api/data/datasets` would even create one. Asking for that actor runs no task.

The modules, each knowing only those before it:

    answers     what is read in an answer before it is stored
    endpoints   what is kept, the most important first
    memory      what is remembered of a session, and what is due by it
    report      what one cycle did
    cycle       one cycle: everything due is asked, kept and planned on
    poller      cycle after cycle
"""

from __future__ import annotations

from .answers import has_content
from .endpoints import ENDPOINTS, Empties, Endpoint, When, with_extras
from .poller import Poller
from .report import ARCHIVE, EVERYTHING, TIME, PollReport

__all__ = [
    "ARCHIVE",
    "ENDPOINTS",
    "EVERYTHING",
    "TIME",
    "Empties",
    "Endpoint",
    "PollReport",
    "Poller",
    "When",
    "has_content",
    "with_extras",
]
