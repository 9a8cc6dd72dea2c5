"""`ray-history sessions`: list the sessions in an archive."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from .options import with_store

if TYPE_CHECKING:
    from ray_history.archive.catalog import Session
    from ray_history.archive.ledger import Ledger
    from ray_history.archive.session_files import SessionFiles
    from ray_history.archive.stores import Store

logger = logging.getLogger(__name__)


@click.command("sessions")
@with_store
@click.option("--namespace", help="Only sessions of this namespace.")
@click.option("--cluster", help="Only sessions of this cluster.")
@click.option("--session", help="Only this session; 'latest' is the newest one that matches.")
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of sessions.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Number of sessions to skip.")
@click.option("--details", is_flag=True, help="Also show the layout, nodes, files and completeness of each session.")
@click.option("--unmarked", is_flag=True, help="Also find sessions whose collector died before it wrote a marker.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array with one object per session.")
def command(
    store: Store,
    namespace: str | None,
    cluster: str | None,
    session: str | None,
    limit: int | None,
    offset: int,
    details: bool,
    unmarked: bool,
    as_json: bool,
) -> None:
    """List the sessions in an archive, newest first."""
    import msgspec

    from ray_history.archive.catalog import read_catalog

    store.check()
    catalog = read_catalog(store, unmarked=unmarked)
    if catalog.undecodable:
        logger.warning(
            "ignored invalid session markers: %d, such as %s",
            catalog.undecodable,
            ", ".join(catalog.examples),
        )
    found = catalog.find(namespace, cluster, session).page(offset, limit)
    with ThreadPoolExecutor(16) as threads:
        look = (lambda entry: _details(store, entry)) if details else (lambda _: {})
        rows = [_row(entry) | extra for entry, extra in zip(found, threads.map(look, found), strict=True)]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    _print_table(rows)
    if len(found) < len(catalog.sessions):
        logger.info("showing %d of %d sessions", len(found), len(catalog.sessions))
    elif not found:
        logger.info("no sessions in %s%s", store.url, "" if unmarked else " (try --unmarked)")


def _row(session: Session) -> dict[str, Any]:
    """The fields of KubeRay's `/clusters`, followed by ours."""
    row: dict[str, Any] = {
        "name": session.cluster.name,
        "namespace": session.cluster.namespace,
        "sessionName": session.name,
        "createTime": session.started_iso,
        "createTimeStamp": session.started,
    }
    if session.cluster.owner_kind:
        row |= {"ownerKind": session.cluster.owner_kind, "ownerName": session.cluster.owner_name}
    problem = {"problem": session.problem} if session.problem else {}
    return row | {"layout": session.generation, "marked": session.marked} | problem


def _details(store: Store, session: Session) -> dict[str, Any]:
    from ray_history.archive.session_files import list_session

    files = list_session(store, session)
    return {
        "layout": "+".join(sorted(files.generations)) or session.generation,
        "nodes": len(files.nodes),
        "eventFiles": len(files.event_files),
        "eventBytes": sum(file.stored.size for file in files.event_files),
        "logFiles": len(files.whole_logs),
        "logBytes": sum(stored.size for _, _, stored in files.whole_logs),
        "tailBundles": len(files.tail_bundles),
        "endpoints": len(files.endpoints),
        "unknownObjects": len(files.unknown),
        **_recording(store, session, files),
    }


def _recording(store: Store, session: Session, files: SessionFiles) -> dict[str, Any]:
    """How complete the session is, from its ledgers."""
    import time
    from dataclasses import replace

    from ray_history.archive import layout
    from ray_history.server.completeness.assessment import assess
    from ray_history.server.completeness.evidence import Evidence
    from ray_history.server.sessions.liveness import LifeSigns

    read = [
        _ledger(store, found.key)
        for found in store.list(layout.ledger_prefix(session.root, session.cluster, session.name))
    ]
    ledgers = [ledger for ledger, _ in read if ledger is not None]
    invalid = [problem for _, problems in read for problem in problems]
    evidence = replace(
        Evidence.from_ledgers(ledgers),
        has_event_files=bool(files.with_events),
        is_live=LifeSigns.from_archive(ledgers, files).state(time.time()) == "live",
        invalid="; ".join(invalid),
    )
    assessment = assess(evidence)
    problem = {"problem": f"invalid ledger: {'; '.join(invalid[:3])}"} if invalid else {}
    return {"recording": assessment.state, "recordedShare": assessment.share} | problem


def _ledger(store: Store, key: str) -> tuple[Ledger | None, list[str]]:
    from ray_history.archive import ledger
    from ray_history.archive.errors import NotFound, TooLarge
    from ray_history.archive.stores.interface import read_small

    try:
        return ledger.read(read_small(store, key, ledger.MAX_SIZE))
    except NotFound:  # deleted since it was listed
        return None, []
    except TooLarge as error:
        return None, [str(error)]


_COLUMNS = {
    "NAMESPACE": "namespace",
    "CLUSTER": "name",
    "OWNER": "owner",
    "SESSION": "sessionName",
    "STARTED": "createTime",
    "LAYOUT": "layout",
    "NODES": "nodes",
    "EVENT FILES": "eventFiles",
    "EVENT BYTES": "eventBytes",
    "LOG FILES": "logFiles",
    "LOG BYTES": "logBytes",
    "ENDPOINTS": "endpoints",
    "RECORDING": "recording",
    "PROBLEM": "problem",
}


def _print_table(rows: list[dict[str, Any]]) -> None:
    from ray_history.server.formatting import plain

    for row in rows:
        row["owner"] = f"{row['ownerKind']}/{row['ownerName']}" if "ownerKind" in row else "-"
        if not row["marked"]:
            row["layout"] += " (unmarked)"
    columns = {title: key for title, key in _COLUMNS.items() if any(key in row for row in rows)}
    cells = [list(columns), *([plain(row.get(key, "")) for key in columns.values()] for row in rows)]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
