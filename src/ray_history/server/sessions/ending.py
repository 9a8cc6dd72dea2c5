"""How a session ended, and what shows it: one rule for open sessions and for lists of sessions.

A session without a word for its end is `ended`: nothing in the archive says whether Ray was stopped or killed. The logs
and ledgers of the head are read when the index is built, so a list needs only summaries.

The end of a command that `ray-history run` recorded comes first: Ray is stopped with its script, however that ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ray_history.history.facts import Facts
from ray_history.server.formatting import clip
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.endpoint import SessionRequest
from ray_history.server.sessions.liveness import State
from ray_history.server.sessions.overview import SessionOverview

Word = Literal["live", "ended", "failed", "stopped", "killed", "lost contact", "unknown"]


@dataclass(frozen=True, slots=True)
class Ending:
    word: Word
    evidence: str


def ending(request: SessionRequest) -> Ending:
    """The word for the end of an open session, as badges show it."""
    session = request.open
    return _ending(session.state, session.facts, is_shut_down=session.signs.is_shut_down, redact=request.redact)


def ending_of(overview: SessionOverview, state: State, *, redact: bool) -> Ending:
    """The word for the end of a session in a list; without a summary its logs are unknown."""
    facts = overview.summary.facts if overview.summary else Facts()
    return _ending(state, facts, is_shut_down=overview.signs.is_shut_down, redact=redact)


def _ending(state: State, facts: Facts, *, is_shut_down: bool, redact: bool) -> Ending:
    if state == "live":
        return Ending("live", "Its collectors still send heartbeats.")
    if facts.exit_code is not None or facts.exit_signal:
        return _ending_of_command(facts, redact=redact)
    if state == "lost" and facts.ended == "left":
        return Ending(
            "lost contact", "Its recorder was stopped while Ray still ran. What happened after that is unknown."
        )
    if state == "lost":
        return Ending("lost contact", "The heartbeats stopped without a shutdown. It may have run on after that.")
    if state == "unknown":
        return Ending("unknown", "The archive has neither a ledger nor a file of it.")
    shutdown = facts.shutdown
    if shutdown:
        line = clip(redacted(shutdown) if redact else shutdown, 200)
        return Ending("stopped", f"Ray received a signal to stop: {line}")
    if shutdown is not None and facts.lost_dashboard:
        return Ending(
            "killed",
            "The dashboard was gone while the collector still ran, and gcs_server.out reports no shutdown.",
        )
    if facts.imported:
        return Ending("ended", "It was imported from its log files, the last of which ends here.")
    if is_shut_down:
        return Ending("ended", "Its collectors shut down cleanly.")
    return Ending("ended", "The time of its last sign of life: its collectors wrote no ledger.")


def _ending_of_command(facts: Facts, *, redact: bool) -> Ending:
    command = facts.command or "its command"
    command = clip(redacted(command) if redact else command, 200)
    how = f"was ended by {facts.exit_signal}" if facts.exit_signal else f"exited with code {facts.exit_code}"
    if facts.stopped_by:
        return Ending("stopped", f"{command} was stopped by {facts.stopped_by}, and {how}.")
    word: Word = "ended" if facts.exit_code == 0 else "killed" if facts.exit_signal == "SIGKILL" else "failed"
    return Ending(word, f"{command} {how}.")
