"""A session as lists show it: what is known of it, put together and judged."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_history.archive.catalog import Session
from ray_history.index.summary import Job
from ray_history.server import formatting as texts
from ray_history.server.completeness.assessment import Assessment, Reason, assess
from ray_history.server.completeness.evidence import Evidence
from ray_history.server.formatting import KINDS
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.liveness import State
from ray_history.server.sessions.overview import SessionOverview


@dataclass(frozen=True, slots=True)
class Row:
    """A session as the list shows it."""

    session: Session
    state: State
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
    kept: Assessment = field(default_factory=lambda: Assessment(None))
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


def make_row(session: Session, known: SessionOverview, state: State, *, redact: bool) -> Row:
    """What the list shows of a session."""
    summary = known.summary
    fields = _names(session)
    share = _completeness(known, state)
    if summary is None:
        last = max((ledger.written for ledger in known.ledgers), default=0.0)
        nodes = len(known.ledgers) or None
        return Row(session, state, last or None, nodes=nodes, kept=share, fields=_lower(fields))
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
        *(f"{hide(failure.name)}: {hide(failure.text) or failure.kind}" for failure in summary.failures),
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
        float(last_ns) / 1e9 if isinstance(last_ns, int | float) else max(summary.newest_file, session.started) or None,
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
        kept=share,
        fields=_lower(fields),
        lines=tuple(texts.clip(line, 300) for text in (*of_jobs, *errors) for line in text.splitlines()),
    )


def running_row(session: Session, ray_version: str) -> Row:
    """What the list shows of a cluster that runs and is not stored: what Kubernetes says of it."""
    nothing = Assessment(None, (Reason("not stored yet", "It runs, and no collector of it has stored anything yet."),))
    return Row(
        session, "live", None, ray=ray_version, kept=nothing, fields=_lower(_names(session) | {"ray": ray_version})
    )


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


def _completeness(known: SessionOverview, state: State) -> Assessment:
    if known.summary is None and not known.ledgers:
        reason = Reason("not yet indexed", "This session was not rebuilt yet; opening it does that.")
        return Assessment(None, (reason,))
    return assess(Evidence.from_summary(known, state))
