"""`ray-history index`: rebuild sessions ahead of time."""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING

import click

from .options import with_indexer

if TYPE_CHECKING:
    from ray_history.archive.catalog import Catalog, Session
    from ray_history.index.indexer import Indexer
    from ray_history.index.prebuild import Outcome

logger = logging.getLogger(__name__)


@click.command("index")
@with_indexer
@click.argument("names", nargs=-1, metavar="[NAMESPACE/CLUSTER[/SESSION]]...")
@click.option("--all", "every", is_flag=True, help="All sessions in the archive.")
def command(indexer: Indexer, names: tuple[str, ...], every: bool) -> None:
    """Rebuild sessions ahead of time, so that they open at once.

    SESSION may be `latest`; without it, all sessions of the cluster are rebuilt. The command can run on several
    machines at once and can be repeated at any time: an up-to-date session costs one listing.
    """
    from ray_history.archive.catalog import read_catalog
    from ray_history.index.locks import CancelToken
    from ray_history.index.prebuild import prebuild

    if every and names:
        raise click.UsageError(f"--all already includes every session: drop it, or drop {' '.join(names)}")
    if not every and not names:
        raise click.UsageError("no sessions given: name them as NAMESPACE/CLUSTER[/SESSION], or use --all")
    indexer.prepare()  # before there are threads: a process without any can be copied
    store = indexer.store
    store.check()
    catalog = read_catalog(store)
    wanted = catalog.sessions if every else tuple(entry for name in names for entry in _find(catalog, name, store.url))
    done = failed = 0
    # A CronJob ends its pod with SIGTERM: raise KeyboardInterrupt, so that unfinished builds are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for outcome in prebuild(indexer, dict.fromkeys(wanted), CancelToken()):
            click.echo(_describe(outcome))
            done += 1
            failed += outcome.how == "failed"
    except KeyboardInterrupt:
        click.echo(f"ray-history: interrupted; {done} of {len(wanted)} sessions are done", err=True)
        sys.exit(1)
    if failed:
        logger.error("%d of %d sessions failed", failed, len(wanted))
        sys.exit(1)


def _find(catalog: Catalog, name: str, url: str) -> tuple[Session, ...]:
    """The sessions that a NAMESPACE/CLUSTER[/SESSION] names."""
    from ray_history.archive.errors import NotFound

    namespace, _, rest = name.partition("/")
    cluster, _, session = rest.partition("/")
    if not cluster:
        raise click.UsageError(f"{name!r} is not of the form NAMESPACE/CLUSTER[/SESSION]")
    found = catalog.find(namespace, cluster, session or None).sessions
    if not found:
        raise NotFound(f"no session {name} in {url}: list its sessions with `ray-history sessions`")
    return found


def _describe(outcome: Outcome) -> str:
    session = outcome.session
    text = f"{session.cluster.namespace}/{session.cluster.name}/{session.name}: {outcome.how}"
    if outcome.manifest is None:
        return f"{text}: {outcome.error}"
    facts = outcome.manifest.facts
    text += f", {facts.tasks:,} tasks ({facts.failed_tasks:,} failed), {facts.actors:,} actors"
    if outcome.manifest.problem_count:
        text += f"; {outcome.manifest.problem_count} problems, first: {outcome.manifest.problems[0]}"
    return text
