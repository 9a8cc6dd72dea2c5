"""Polls the dashboard for state that Ray's events do not carry, and stores its answers.

Invariants:
* an answer is stored under the URL that Ray's frontend and SDK request, unchanged (env_vars are redacted when served);
* only the thread of the cycle decides and changes state; the threads of the pool only send requests and store answers;
* answers that arrive after the deadline or after `stop()` are not stored; at most four bodies are in memory at a time;
* an empty answer never replaces a full one while the cluster may be shutting down (see `EmptyAnswers`);
* requests that run a task in the user's job (Ray Data, Ray Train) are rare, and sent only while the actor that would
  answer is alive: `/api/data/datasets` would even create one. Checking for the actor runs no task.

The modules, each importing only those before it:

    answers     what is read from an answer before it is stored
    endpoints   the polled endpoints, the most important first
    memory      what is remembered of a session, and what is due
    cycle       one cycle: everything due is requested and stored
    poller      successive cycles
"""

from __future__ import annotations

from .answers import has_content
from .cycle import ARCHIVE, EVERYTHING, TIME, PollReport
from .endpoints import ENDPOINTS, EmptyAnswers, Endpoint, When, with_extras
from .poller import Poller

__all__ = [
    "ARCHIVE",
    "ENDPOINTS",
    "EVERYTHING",
    "TIME",
    "EmptyAnswers",
    "Endpoint",
    "PollReport",
    "Poller",
    "When",
    "has_content",
    "with_extras",
]
