"""The command `ray-history`: wires the rooms together.

Exit codes: 0 done; 2 wrong usage or configuration, in one line that says how to fix it; 1 anything else.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, TypeVar

import click
import msgspec

from ray_history import __version__
from ray_history.archive.catalog import Catalog, Session, read_catalog
from ray_history.archive.errors import ArchiveError, NotFound, Unreachable
from ray_history.archive.names import InvalidName
from ray_history.archive.session_files import SessionFiles, list_session
from ray_history.archive.settings import Upstream, resolve
from ray_history.archive.stores import Store, open_store
from ray_history.collector import settings as collector_settings
from ray_history.log_setup import FORMATS, LEVELS, configure_logging

from .options import AUTH, DASHBOARD_DIR, INDEX, INJECT, KUBE, SERVE, STORAGE, UPSTREAM, WITHOUT_EFFECT, with_options

if TYPE_CHECKING:
    from ray_history.index.indexer import Indexer
    from ray_history.index.prebuild import Outcome

logger = logging.getLogger(__name__)

Command = TypeVar("Command", bound=Callable[..., Any])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="ray-history")
@click.option("--log-level", type=click.Choice(LEVELS), default="info", show_default=True, help="What to tell.")
@click.option("--log-format", type=click.Choice(FORMATS), default="text", show_default=True, help="How to tell it.")
def ray_history(log_level: str, log_format: str) -> None:
    """Keep what Ray clusters did, and show it after they are gone."""
    configure_logging(log_level, log_format)


def storage_options(command: Command) -> Command:
    """The ways to say where the archive is: ours, and the flags of KubeRay's binaries."""

    @functools.wraps(command)
    def with_store(
        *args: Any,
        storage: str | None,
        storage_backend: str,
        storage_backend_config_path: str,
        storage_root_dir: str,
        **kwargs: Any,
    ) -> Any:
        upstream = Upstream(storage_backend, storage_backend_config_path, storage_root_dir)
        store = open_store(resolve(storage, upstream, os.environ))
        return command(*args, store=store, **kwargs)

    return with_options(STORAGE, with_store)  # type: ignore[no-any-return]


@ray_history.command()
@storage_options
@click.option("--namespace", help="Only clusters of this namespace.")
@click.option("--cluster", help="Only this cluster.")
@click.option("--session", help="Only this session; 'latest' is the newest that matches.")
@click.option("--limit", type=click.IntRange(min=1), help="At most so many sessions, newest first.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Leave out the first so many.")
@click.option("--details", is_flag=True, help="Also look into each session: layout, nodes, event and log files.")
@click.option("--unmarked", is_flag=True, help="Also find sessions whose collector died before it marked them.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array, one object per session.")
def sessions(
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
    """List the sessions that an archive holds, newest first."""
    store.check()
    catalog = read_catalog(store, unmarked=unmarked)
    if catalog.undecodable:
        logger.warning(
            "%d objects among the session markers were not understood, such as %s",
            catalog.undecodable,
            ", ".join(catalog.examples),
        )
    found = catalog.find(namespace, cluster, session).page(offset, limit)
    with ThreadPoolExecutor(16) as threads:
        look = (lambda entry: list_session(store, entry)) if details else (lambda _: None)
        rows = [_row(entry, files) for entry, files in zip(found, threads.map(look, found), strict=True)]
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(rows)).decode())
        return
    _print_table(rows)
    if len(found) < len(catalog.sessions):
        logger.info("showing %d of %d sessions", len(found), len(catalog.sessions))
    elif not found:
        logger.info("%s holds no sessions%s", store.url, "" if unmarked else " (try --unmarked)")


def index_options(command: Command) -> Command:
    """Where rebuilt sessions are kept on this machine, and what rebuilding may use."""

    @functools.wraps(command)
    def with_indexer(
        *args: Any,
        store: Store,
        cache_dir: str,
        cache_size: int,
        build_memory: int,
        build_threads: int,
        share_index: bool,
        **kwargs: Any,
    ) -> Any:
        from ray_history.history.engine import Limits  # DuckDB takes 0.1 s to import: only for who needs it
        from ray_history.index.cache import Cache
        from ray_history.index.indexer import Indexer

        cache = Cache(Path(cache_dir).expanduser(), cache_size << 20)
        limits = Limits(build_memory << 20, build_threads)
        return command(*args, indexer=Indexer(store, cache, limits, share=share_index), **kwargs)

    return with_options(INDEX, with_indexer)  # type: ignore[no-any-return]


@ray_history.command()
@storage_options
@index_options
@click.argument("names", nargs=-1, metavar="[NAMESPACE/CLUSTER[/SESSION]]...")
@click.option("--all", "every", is_flag=True, help="All sessions of the archive.")
def index(indexer: Indexer, names: tuple[str, ...], every: bool) -> None:
    """Rebuild sessions ahead of time, so that nobody waits when they are opened.

    SESSION may be `latest`; without it all sessions of the cluster are meant. Can run on many machines at once, and
    again at any time: what is up to date costs one listing.
    """
    from ray_history.index.indexer import Stop
    from ray_history.index.prebuild import index_ahead

    if every and names:
        raise click.UsageError(f"--all means all sessions; leave it out, or leave out {' '.join(names)}")
    if not every and not names:
        raise click.UsageError("say which sessions, as NAMESPACE/CLUSTER[/SESSION], or --all")
    store = indexer.store
    store.check()
    catalog = read_catalog(store)
    wanted = catalog.sessions if every else tuple(found for name in names for found in _named(store, catalog, name))
    done = failed = 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a CronJob ends it: what is begun is removed
    try:
        for outcome in index_ahead(indexer, dict.fromkeys(wanted), Stop()):
            click.echo(_told(outcome))
            done += 1
            failed += outcome.how == "failed"
    except KeyboardInterrupt:
        click.echo(f"ray-history: stopped after {done} of {len(wanted)} sessions; what is done stays done", err=True)
        sys.exit(1)
    if failed:
        logger.error("%d of %d sessions failed", failed, len(wanted))
        sys.exit(1)


def _named(store: Store, catalog: Catalog, name: str) -> tuple[Session, ...]:
    namespace, _, rest = name.partition("/")
    cluster, _, session = rest.partition("/")
    if not cluster:
        raise click.UsageError(f"{name!r} is no NAMESPACE/CLUSTER[/SESSION]")
    found = catalog.find(namespace, cluster, session or None).sessions
    if not found:
        raise NotFound(f"{store.url} holds no session {name}; `ray-history sessions` lists what it holds")
    return found


def _told(outcome: Outcome) -> str:
    session = outcome.session
    told = f"{session.cluster.namespace}/{session.cluster.name}/{session.name}: {outcome.how}"
    if outcome.manifest is None:
        return f"{told}: {outcome.error}"
    facts = outcome.manifest.facts
    told += f", {facts['tasks']:,} tasks ({facts['failed_tasks']:,} failed), {facts['actors']:,} actors"
    if outcome.manifest.problem_count:
        told += f"; {outcome.manifest.problem_count} problems, first: {outcome.manifest.problems[0]}"
    return told


def collector_options(command: Command) -> Command:
    """One option per setting of the collector's table, under all its names."""
    decorated: Any = command
    for setting in reversed(collector_settings.SETTINGS):
        shown = f"{setting.help} [env: {setting.variable}; default: {setting.default or 'none'}]"
        optional_value: dict[str, Any] = (
            {"is_flag": False, "flag_value": "true"} if setting.kind == "boolean" else {}  # `--x` alone, as in Go
        )
        decorated = click.option(
            *setting.flags, setting.name, default=None, metavar=setting.kind.upper(), help=shown, **optional_value
        )(decorated)
    return decorated  # type: ignore[no-any-return]


@ray_history.command()
@storage_options
@collector_options
def collect(store: Store, **flags: str | None) -> None:
    """Stand beside a Ray node and keep what it tells, writes and shows.

    Ray sends its events here when these are set in the environment of every Ray process, drivers included:

    \b
      RAY_enable_ray_event=true
      RAY_enable_core_worker_ray_event_to_aggregator=true
      RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR=http://127.0.0.1:8084/v1/events
      RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES=ALL
    """
    from ray_history.collector.process import leave, run

    leave(run(collector_settings.resolve(flags, os.environ), store, os.environ))


@ray_history.command()
@functools.partial(with_options, (*STORAGE, *SERVE, *AUTH, *KUBE, *INDEX, *UPSTREAM))
@click.pass_context
def serve(context: click.Context, /, tls_cert: str | None, tls_key: str | None, **flags: Any) -> None:
    """Show sessions in the Ray Dashboard, finished and running ones, and answer its API."""
    from ray_history.kube import Misconfigured
    from ray_history.server.auth import WrongAuth, checked, is_loopback, make_mode
    from ray_history.server.live import api_server, make_fleet
    from ray_history.server.process import Settings
    from ray_history.server.process import serve as run_server

    for name in WITHOUT_EFFECT:
        if flags.pop(name) not in (None, False):
            logger.warning("--%s has no effect here: %s", name.replace("_", "-"), WITHOUT_EFFECT[name])
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    above = context.parent.params if context.parent else {}
    settings = Settings(
        tls_cert=tls_cert,
        tls_key=tls_key,
        log_level=above.get("log_level", "info"),
        log_format=above.get("log_format", "text"),
        **flags,
    )
    try:
        checked(settings, settings.host)
        make_mode(settings, lambda: api_server(settings))
        make_fleet(settings)
    except (WrongAuth, Misconfigured) as error:
        raise click.ClickException(str(error)) from None
    if settings.auth == "none" and not is_loopback(settings.host):
        logger.warning(
            "whoever reaches %s:%d sees every session of every namespace; "
            "--auth token, kubernetes or header chooses who may",
            settings.host,
            settings.port,
        )
    upstream = Upstream(settings.storage_backend, settings.storage_backend_config_path, settings.storage_root_dir)
    store = open_store(resolve(settings.storage, upstream, os.environ))
    store.check()
    scheme = "https" if tls_cert else "http"
    logger.info("serving %s on %s://%s:%d%s/", store.url, scheme, settings.host, settings.port, settings.base_path)
    run_server(settings)


@ray_history.command()
@click.option(
    "--directory",
    default="~/.cache/ray-history/demo",
    show_default=True,
    metavar="DIR",
    help="Where everything of the demo is kept, so that the next start is quick.",
)
@click.option(
    "--storage",
    type=click.Choice(("file", "s3")),
    envvar="DEMO_STORAGE",
    default="file",
    show_default=True,
    help="Archive in a local directory, or on a real S3 server that is started for it. [env: DEMO_STORAGE]",
)
@click.option("--port", default=8080, show_default=True, help="Where the history server listens; another if taken.")
@click.option("--fresh", is_flag=True, help="Forget the cluster of the last run and live through a new one.")
@click.option("--small", is_flag=True, help="Fewer jobs: without Ray Data and Ray Serve.")
def demo(directory: str, **choices: Any) -> None:
    """Run a real Ray cluster, kill it, and show its dashboard afterwards.

    Needs Ray: pip install 'ray-history[demo]'. Everything stays on this machine.
    """
    from ray_history.demo.run import CannotRun, Choices, run

    try:
        run(Choices(Path(directory).expanduser(), **choices))
    except CannotRun as error:
        raise click.ClickException(str(error)) from None


@ray_history.group()
def dashboard() -> None:
    """Versions of the Ray Dashboard's pages."""


@dashboard.command("add")
@functools.partial(with_options, INDEX[:1])
@click.argument("version")
def dashboard_add(version: str, cache_dir: str) -> None:
    """Fetch the pages of a Ray version from the package index, once."""
    from ray_history.server.dashboard.download import CannotAdd, add_dashboard

    try:
        click.echo(f"added {add_dashboard(version, Path(cache_dir).expanduser() / 'dashboards')}")
    except CannotAdd as error:
        raise click.ClickException(str(error)) from None


@dashboard.command("list")
@functools.partial(with_options, (*INDEX[:1], DASHBOARD_DIR))
def dashboard_list(cache_dir: str, dashboard_dir: str | None) -> None:
    """The versions that there are."""
    from ray_history.server.dashboard.builds import Frontends

    given = [Path(dashboard_dir)] if dashboard_dir else []
    found = Frontends([*given, Path(cache_dir).expanduser() / "dashboards"])
    for version in found.versions:
        click.echo(f"{version}  {found.builds[version].directory}")


@ray_history.command("inject")
@functools.partial(with_options, INJECT)
def inject_collector(file: TextIO, **flags: Any) -> None:
    """Add the collector to a RayCluster, RayJob or RayService of your own, and print it.

    \b
      ray-history inject -f raycluster.yaml --storage s3://bucket | kubectl apply -f -
    """
    from ray_history.inject.inject import CannotInject, Sidecar, inject

    try:
        click.echo(inject(file.read(), Sidecar(**flags)), nl=False)
    except (CannotInject, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file.name}: {error}") from None


def _row(session: Session, files: SessionFiles | None) -> dict[str, Any]:
    """The fields of KubeRay's `/clusters`, and ours behind them."""
    row: dict[str, Any] = {
        "name": session.cluster.name,
        "namespace": session.cluster.namespace,
        "sessionName": session.name,
        "createTime": session.started_iso,
        "createTimeStamp": session.started,
    }
    if session.cluster.owner_kind:
        row |= {"ownerKind": session.cluster.owner_kind, "ownerName": session.cluster.owner_name}
    row |= {"layout": session.generation, "marked": session.marked}
    if files is not None:
        row |= {
            "layout": "+".join(sorted(files.generations)) or session.generation,
            "nodes": len(files.nodes),
            "eventFiles": len(files.event_files),
            "eventBytes": sum(file.stored.size for file in files.event_files),
            "logFiles": len(files.whole_logs),
            "logBytes": sum(stored.size for _, _, stored in files.whole_logs),
            "tailBundles": len(files.tail_bundles),
            "endpoints": len(files.endpoints),
            "unknownObjects": len(files.unknown),
        }
    return row


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
}


def _print_table(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["owner"] = f"{row['ownerKind']}/{row['ownerName']}" if "ownerKind" in row else "-"
        if not row["marked"]:
            row["layout"] += " (unmarked)"
    shown = {title: key for title, key in _COLUMNS.items() if any(key in row for row in rows)}
    cells = [list(shown), *([str(row[key]) for key in shown.values()] for row in rows)]
    if not rows:
        return
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command; every expected failure is one line on stderr."""
    try:
        ray_history.main(arguments, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(0)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(1)
    except (ArchiveError, InvalidName, collector_settings.WrongSetting) as error:
        click.echo(f"ray-history: {error}", err=True)
        sys.exit(1 if isinstance(error, Unreachable) else 2)
    except BrokenPipeError:  # `ray-history sessions | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    sys.exit(0)


def collector_main() -> NoReturn:
    """The drop-in for KubeRay's `collector`: the same flags, with one dash or two."""
    main(["collect", *_two_dashes(sys.argv[1:])])


def historyserver_main() -> NoReturn:
    """The drop-in for KubeRay's `historyserver`: the same flags, listening where it listens, open as it is."""
    os.environ.setdefault("RAY_HISTORY_HOST", "0.0.0.0")  # noqa: S104
    os.environ.setdefault("RAY_HISTORY_AUTH", "none")
    main(["serve", *_two_dashes(sys.argv[1:])])


def _two_dashes(arguments: list[str]) -> list[str]:
    return [f"-{text}" if re.match(r"-[a-z]{2}", text) else text for text in arguments]
