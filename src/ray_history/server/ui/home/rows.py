"""The rows of the list of sessions, made from summaries and ledgers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import msgspec

from ray_history.archive.catalog import Session
from ray_history.index.summary import Failure, Job, Summary
from ray_history.server import formatting
from ray_history.server.completeness.assessment import Assessment, Reason, assess
from ray_history.server.completeness.evidence import Evidence
from ray_history.server.formatting import OWNER_KINDS
from ray_history.server.redaction.rules import redacted
from ray_history.server.sessions.ending import Ending, ending_of
from ray_history.server.sessions.liveness import State, start_ns
from ray_history.server.sessions.overview import EMPTY, SessionOverview

_STATUS_ORDER = {"RUNNING": 0, "PENDING": 1, "FAILED": 2}


RowState: TypeAlias = State | Literal["suspended"]


@dataclass(frozen=True, slots=True)
class Row:
    """A session in the list, or a suspended cluster."""

    session: Session
    state: RowState
    last_seen: float | None
    """The last sign of life, Unix seconds; None if unknown."""
    end: Ending | None = None
    """How a stored session ended, as far as its index and its ledgers show."""
    first_event_ns: int | None = None
    is_indexed: bool = False
    ray: str = ""
    nodes: int | None = None
    cpus: float = 0
    gpus: float = 0
    job: Job | None = None
    """The job to show first."""
    other_jobs: int = 0
    other_failed: int = 0
    failed_jobs: int = 0
    finished: int = 0
    failed: int = 0
    other: int = 0
    completeness: Assessment = field(default_factory=lambda: Assessment(None))
    problem: str = ""
    """Why the row cannot be shown, or not with all that belongs into it."""
    fields: dict[str, str] = field(default_factory=dict, repr=False)
    """Searchable texts by field, casefolded."""
    lines: tuple[str, ...] = field(default=(), repr=False)
    """Lines that the row does not show by itself: other jobs and errors."""

    @classmethod
    def unindexed(cls, session: Session, overview: SessionOverview, state: State, end: Ending) -> Row:
        """A session that has no summary yet."""
        last_seen = max((ledger.written for ledger in overview.ledgers), default=0.0)
        return cls(
            session,
            state,
            last_seen or None,
            end,
            nodes=len(overview.ledgers) or None,
            completeness=_completeness(overview, state),
            problem=_problem(session, overview),
            fields=_searchable(_names(session)),
        )

    @classmethod
    def indexed(cls, session: Session, summary: Summary, overview: SessionOverview, state: State, end: Ending) -> Row:
        """A session with its summary, whose texts are already redacted."""
        facts, tasks, jobs = summary.facts, summary.tasks, summary.jobs
        last_ns = overview.signs.last_ns(started=session.started, last_event_ns=facts.last_ns)
        first = min(jobs, key=_job_order, default=None)
        failed_jobs = summary.jobs_by_status.get("FAILED", 0)
        finished, failed = tasks.get("FINISHED", 0), tasks.get("FAILED", 0)
        return cls(
            session,
            state,
            last_ns / 1e9 or None,
            end,
            first_event_ns=facts.start_ns,
            is_indexed=True,
            ray=facts.ray_version or "",
            nodes=facts.nodes or 0,
            cpus=facts.cpus or 0,
            gpus=facts.gpus or 0,
            job=first,
            other_jobs=max(sum(summary.jobs_by_status.values()) - 1, 0),
            other_failed=failed_jobs - (first is not None and first.status == "FAILED"),
            failed_jobs=failed_jobs,
            finished=finished,
            failed=failed,
            other=sum(tasks.values()) - finished - failed,
            completeness=_completeness(overview, state),
            problem=_problem(session, overview),
            fields=search_fields(session, summary),
            lines=_lines(summary),
        )

    @classmethod
    def unshown(cls, session: Session, why: str) -> Row:
        """A session of which only the name can be shown."""
        reason = Reason("cannot be shown", f"This session cannot be shown in the list: {why}.")
        return cls(
            session,
            "unknown",
            None,
            completeness=Assessment(None, (reason,)),
            problem=reason.full,
            fields=_searchable(_names(session)),
        )

    @classmethod
    def running(cls, session: Session, ray_version: str) -> Row:
        """A running cluster of which nothing is stored: what Kubernetes reports."""
        reason = Reason("not stored yet", "The cluster is running, and no collector has stored anything yet.")
        return cls(
            session,
            "live",
            None,
            ray=ray_version,
            completeness=Assessment(None, (reason,)),
            fields=_searchable(_names(session) | {"ray": ray_version}),
        )

    @classmethod
    def suspended(cls, session: Session, ray_version: str) -> Row:
        """A cluster that has no pods until it is resumed."""
        reason = Reason("suspended", "The cluster has no pods until it is resumed. Its past sessions are listed below.")
        fields = _searchable(_names(session) | {"ray": ray_version})
        return cls(session, "suspended", None, ray=ray_version, completeness=Assessment(None, (reason,)), fields=fields)

    @property
    def owner(self) -> str:
        return OWNER_KINDS.get(self.session.cluster.owner_kind, "RayCluster")

    @property
    def started(self) -> int:
        return start_ns(self.session.started, self.first_event_ns) // 10**9

    @property
    def identity(self) -> str:
        cluster = self.session.cluster
        return f"{cluster.namespace}/{cluster.name}/{self.session.name}"

    @property
    def has_failures(self) -> bool:
        return bool(self.failed or self.failed_jobs)

    @property
    def is_incomplete(self) -> bool:
        return self.completeness.is_incomplete

    def duration(self, now: float) -> float | None:
        end = now if self.state == "live" else self.last_seen
        if end is None or not self.started:
            return None
        return max(end - start_ns(self.session.started, self.first_event_ns) / 1e9, 0.0)


def make_row(session: Session, overview: SessionOverview, state: State, *, redact: bool) -> Row:
    """The row of a session, with or without its summary."""
    summary = overview.summary
    end = ending_of(overview, state, redact=redact)
    if summary is None:
        return Row.unindexed(session, overview, state, end)
    return Row.indexed(session, _redacted(summary) if redact else summary, overview, state, end)


def search_fields(session: Session, summary: Summary) -> dict[str, str]:
    """The searchable texts of an indexed session."""
    jobs, failures = summary.jobs, summary.failures
    return _searchable(
        _names(session)
        | {
            "ray": summary.facts.ray_version or "",
            "job": "\n".join([*map(_job_line, jobs), *(job.job_id for job in jobs)]),
            "error": "\n".join([*_errors(jobs, failures), *(failure.kind for failure in failures)]),
        }
    )


def _redacted(summary: Summary) -> Summary:
    replace_fields = msgspec.structs.replace
    return replace_fields(
        summary,
        jobs=[
            replace_fields(job, entrypoint=redacted(job.entrypoint), message=redacted(job.message))
            for job in summary.jobs
        ],
        failures=[
            replace_fields(failure, name=redacted(failure.name), text=redacted(failure.text))
            for failure in summary.failures
        ],
    )


def _job_line(job: Job) -> str:
    return f"{job.entrypoint} ({job.submission_id or job.job_id})"


def _errors(jobs: Sequence[Job], failures: Sequence[Failure]) -> list[str]:
    return [
        *(f"{failure.name}: {failure.text or failure.kind}" for failure in failures),
        *(job.message for job in jobs if job.status == "FAILED"),
    ]


def _lines(summary: Summary) -> tuple[str, ...]:
    texts = [*map(_job_line, summary.jobs), *_errors(summary.jobs, summary.failures)]
    return tuple(formatting.clip(line, 300) for text in texts for line in text.splitlines())


def _names(session: Session) -> dict[str, str]:
    cluster = session.cluster
    return {
        "cluster": cluster.name,
        "namespace": cluster.namespace,
        "owner": f"{OWNER_KINDS.get(cluster.owner_kind, 'RayCluster')} {cluster.owner_name}",
        "session": session.name,
    }


def _searchable(fields: dict[str, str]) -> dict[str, str]:
    return {name: formatting.plain(text).casefold() for name, text in fields.items()}


def _job_order(job: Job) -> tuple[int, int]:
    return _STATUS_ORDER.get(job.status, 3), -(job.start_ms or 0)


def _problem(session: Session, overview: SessionOverview) -> str:
    parts = [session.problem]
    if overview.problems:
        parts.append(f"Not all of it can be shown, because this cannot be used: {'; '.join(overview.problems[:3])}.")
    return formatting.clip(" ".join(filter(None, parts)), 400)


def _completeness(overview: SessionOverview, state: State) -> Assessment:
    if overview == EMPTY:
        reason = Reason("not indexed yet", "The index of this session is not built yet; opening the session builds it.")
        return Assessment(None, (reason,))
    return assess(Evidence.from_summary(overview, state))
