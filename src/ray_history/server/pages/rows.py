"""A session as lists show it: what is known of it, put together and judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_history.archive.catalog import Session
from ray_history.index.summary import Job

from ..redaction import redacted
from . import texts
from .known import Account, Known

KINDS = {"rayjob": "RayJob", "rayservice": "RayService"}


@dataclass(frozen=True, slots=True)
class Kept:
    """How much of a session's history is kept."""

    share: float | None
    """Of the events that are known of; none if nobody counted."""
    short: str = ""
    """Why it is not all, in two or three words."""
    why: str = ""
    """The same in full."""


@dataclass(frozen=True, slots=True)
class Row:
    """A session as the list shows it."""

    session: Session
    state: str
    """live, ended, lost or unknown."""
    last: float | None
    """Its last sign of life, Unix seconds; none if it is not known."""
    indexed: bool = False
    ray: str = ""
    nodes: int | None = None
    cpus: float = 0
    gpus: float = 0
    job: Job | None = None
    """The one to show first."""
    other_jobs: int = 0
    other_failed: int = 0
    failed_jobs: int = 0
    finished: int = 0
    failed: int = 0
    other: int = 0
    kept: Kept = Kept(None)
    fields: dict[str, str] = field(default_factory=dict, repr=False)
    """What can be searched, without case."""
    lines: tuple[str, ...] = field(default=(), repr=False)
    """What of it the list does not show by itself: other jobs, and errors."""

    @property
    def owner(self) -> str:
        return KINDS.get(self.session.cluster.owner_kind, "RayCluster")

    @property
    def started(self) -> int:
        return self.session.started

    @property
    def identity(self) -> str:
        cluster = self.session.cluster
        return f"{cluster.namespace}/{cluster.name}/{self.session.name}"

    @property
    def has_failures(self) -> bool:
        return bool(self.failed or self.failed_jobs)

    @property
    def is_incomplete(self) -> bool:
        return bool(self.kept.short) and self.kept.share is not None

    def duration(self, now: float) -> float | None:
        end = now if self.state == "live" else self.last
        return None if end is None else max(end - self.started, 0.0)


def make_row(session: Session, known: Known, state: str, *, redact: bool) -> Row:
    """What the list shows of a session."""
    summary = known.summary
    fields = _names(session)
    kept = _kept(known, state)
    if summary is None:
        last = max((account.written for account in known.accounts), default=0.0)
        nodes = len(known.accounts) or None
        return Row(session, state, last or None, nodes=nodes, kept=kept, fields=_lower(fields))
    facts = summary.facts
    hide = redacted if redact else lambda text: text
    jobs = [
        Job(
            job.job_id, job.submission_id, hide(job.entrypoint), job.status, hide(job.message), job.start_ms, job.end_ms
        )
        for job in summary.jobs
    ]
    first = min(jobs, key=_first_shown, default=None)
    fields["ray"] = str(facts.get("ray_version") or "")
    of_jobs = [f"{job.entrypoint} ({job.submission_id or job.job_id})" for job in jobs]
    errors = [
        *(f"{failure.name}: {hide(failure.text) or failure.kind}" for failure in summary.failures),
        *(job.message for job in jobs if job.status == "FAILED"),
    ]
    fields["job"] = "\n".join([*of_jobs, *(job.job_id for job in jobs)])
    fields["error"] = "\n".join([*errors, *(failure.kind for failure in summary.failures)])
    last_ns = facts.get("last_ns")
    failed_jobs = summary.jobs_by_status.get("FAILED", 0)
    tasks = summary.tasks
    finished, failed = tasks.get("FINISHED", 0), tasks.get("FAILED", 0)
    return Row(
        session,
        state,
        float(last_ns) / 1e9 if isinstance(last_ns, int | float) else summary.newest_file or None,
        indexed=True,
        ray=fields["ray"],
        nodes=int(facts.get("nodes") or 0),
        cpus=float(facts.get("cpus") or 0),
        gpus=float(facts.get("gpus") or 0),
        job=first,
        other_jobs=max(sum(summary.jobs_by_status.values()) - 1, 0),
        other_failed=failed_jobs - (first is not None and first.status == "FAILED"),
        failed_jobs=failed_jobs,
        finished=finished,
        failed=failed,
        other=sum(tasks.values()) - finished - failed,
        kept=kept,
        fields=_lower(fields),
        lines=tuple(texts.clip(line, 300) for text in (*of_jobs, *errors) for line in text.splitlines()),
    )


def running_row(session: Session, ray_version: str) -> Row:
    """What the list shows of a cluster that runs and is not stored: what Kubernetes says of it."""
    kept = Kept(None, "not stored yet", "It runs, and no collector of it has stored anything yet.")
    return Row(session, "live", None, ray=ray_version, kept=kept, fields=_lower(_names(session) | {"ray": ray_version}))


def _names(session: Session) -> dict[str, str]:
    cluster = session.cluster
    return {
        "cluster": cluster.name,
        "namespace": cluster.namespace,
        "owner": f"{KINDS.get(cluster.owner_kind, 'RayCluster')} {cluster.owner_name}",
        "session": session.name,
    }


def _lower(fields: dict[str, str]) -> dict[str, str]:
    return {name: texts.plain(text).casefold() for name, text in fields.items()}


def _first_shown(job: Job) -> tuple[int, int]:
    order = {"RUNNING": 0, "PENDING": 1, "FAILED": 2}
    return order.get(job.status, 3), -(job.start_ms or 0)


def _kept(known: Known, state: str) -> Kept:
    """From the ledgers as they are now, else from those that went into the summary."""
    summary, accounts = known.summary, known.accounts
    if summary is None and not accounts:
        return Kept(None, "not yet indexed", "This session was not rebuilt yet; opening it does that.")
    if not accounts and summary is not None and not summary.accounts.collectors:
        reasons = _reading_problems(known)
        short, why = reasons[0] if reasons else ("no account", _NO_ACCOUNT)
        return Kept(None, short, why)
    received, stored, dropped, cut_off = _counted(known)
    reasons = []
    if state == "lost":
        reasons.append(
            ("vanished", "There was no sign of life any more, and no end in order: the last seconds are lost.")
        )
    elif cut_off and state == "ended":
        reasons.append((f"{cut_off} node{'s' * (cut_off > 1)} cut off", f"{cut_off} collectors did not end in order."))
    if dropped:
        reasons.append(
            (f"Ray dropped {texts.short(dropped)}", f"Ray dropped {dropped:,} events before they were sent.")
        )
    if state != "live" and received > stored:
        missing = received - stored
        reasons.append((f"{texts.short(missing)} not stored", f"{missing:,} events were received but are not stored."))
    reasons += _reading_problems(known)
    known_of = received + dropped
    share = 1.0 if state == "live" and not dropped else min(stored / known_of, 1.0) if known_of else 1.0
    return Kept(share, reasons[0][0] if reasons else "", " ".join(why for _, why in reasons))


_NO_ACCOUNT = "Its collectors kept no account, so that nobody knows whether all arrived."


def _counted(known: Known) -> tuple[int, int, int, int]:
    """Events received (each once), stored, and dropped by Ray; collectors that did not end in order."""
    accounts = known.accounts
    if accounts:
        return (
            sum(account.events.received - account.events.duplicated for account in accounts),
            sum(account.events.stored + account.events.quarantined for account in accounts),
            sum(account.events.dropped_by_ray or 0 for account in accounts),
            sum(_is_cut_off(account) for account in accounts),
        )
    summary = known.summary
    if summary is None:
        return 0, 0, 0, 0

    def told(name: str) -> int:
        return int(summary.facts.get(name) or 0)

    return (
        told("events_received") - (summary.accounts.duplicated or 0),
        told("events_stored") + told("events_quarantined"),
        told("events_dropped_by_ray"),
        summary.accounts.cut_off,
    )


def _is_cut_off(account: Account) -> bool:
    return account.ended != "graceful"


def _reading_problems(known: Known) -> list[tuple[str, str]]:
    summary = known.summary
    if summary is None:
        return []
    found = []
    if missing := int(summary.facts.get("nodes_without_files") or 0):
        found.append((f"{missing} node{'s' * (missing > 1)} missing", f"Nothing was stored of {missing} nodes."))
    if lost := int(summary.facts.get("log_bytes_lost") or 0):
        found.append((f"{texts.size(lost)} of logs lost", f"{texts.size(lost)} of log files are lost."))
    if number := summary.problem_count:
        found.append(
            (
                f"{texts.short(number)} problem{'s' * (number > 1)}",
                f"Problems in the archive: {texts.clip(summary.problem)}",
            )
        )
    return found
