"""`ray-history run`: run a command, and record the Ray that it starts."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ray_history.archive.settings import StorageOptions
from ray_history.local.environment import EXPORT_ADDRESS
from ray_history.local.places import RUNS, Place, cluster_name, new_home

from .options import take, with_settings

if TYPE_CHECKING:
    from ray_history.local.command import Outcome
    from ray_history.local.messages import RecordedSession

_NO_EVENTS = (
    "it ended before the agent of its dashboard had started, or has none (pip install 'ray[default]'), "
    "or is older than Ray 2.49; only its logs are recorded"
)


@click.command(
    "run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "max_content_width": 110}
)
@with_settings(StorageOptions)
@click.option("--namespace", default="default", show_default=True, help="Namespace of the sessions.")
@click.option("--cluster", metavar="NAME", show_default="the name of the script", help="Cluster of the sessions.")
@click.argument("words", metavar="[--] COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(words: tuple[str, ...], namespace: str, cluster: str | None, **options: str) -> None:
    """Run a command, such as `python train.py`, and record the Ray that it starts.

    The command keeps its output, its terminal, its signals and its exit code. A Ray that it leaves running is recorded
    to its end, in the background.
    """
    from ray_history.local.command import CannotStart, leave, run

    storage = take(StorageOptions, dict(options)).or_default(os.environ, quiet=True)
    storage.resolve(os.environ)  # refused before the command starts
    place = Place.of(storage, namespace, cluster or cluster_name(words))
    if address := os.environ.get(EXPORT_ADDRESS):
        _say(f"Ray's events go to {address} already, as {EXPORT_ADDRESS} says; only logs and state are recorded")
    try:
        outcome = run(words, storage=asdict(storage), namespace=place.namespace, cluster=place.cluster, home=new_home())
    except CannotStart as error:
        _say(str(error))
        sys.exit(error.code)
    with suppress(KeyboardInterrupt):
        _report(outcome, place)
    leave(outcome.returncode)


def _report(outcome: Outcome, place: Place) -> None:
    """Say in a few lines what was recorded, and where it can be seen."""
    recorded = outcome.recorded
    if recorded is None:
        _say("the recorder has not finished yet; it goes on in the background")
        return
    if not recorded.sessions:
        _say("the command started no Ray on this machine; nothing was recorded")
        return
    for session in recorded.sessions:
        if note := _note(session):
            _say(note)
    if not recorded.is_complete:
        _say(f"not everything could be stored; the rest, and the log of the recorder, are in {RUNS}")
    here = [session.name for session in recorded.sessions if session.is_ours or not session.exports_to]
    if here and outcome.returncode and (line := _decisive_line(place, here[-1])):
        _say(line)
    for name in here:
        _say(place.link(name))


def _note(session: RecordedSession) -> str:
    """What is special about the recording of a session; empty for one that the command started and ended."""
    if session.is_ours and session.is_running:
        return f"{session.name} still runs; it is recorded to its end, in the background"
    if session.is_ours:
        return (
            "" if session.events or os.environ.get(EXPORT_ADDRESS) else f"{session.name} sent no events: {_NO_EVENTS}"
        )
    if session.exports_to:
        return f"{session.name} is recorded by the collector at {session.exports_to}; look for it there"
    return f"{session.name} was started without recording: its logs and its state are recorded from now on, no events"


def _decisive_line(place: Place, session: str) -> str:
    """The error of most failed tasks of a session, from its index, which is built; empty if no task failed."""
    from ray_history.archive.catalog import read_catalog
    from ray_history.index.locks import CancelToken
    from ray_history.index.prebuild import prebuild
    from ray_history.index.settings import IndexSettings, make_indexer

    indexer = make_indexer(place.storage.resolve(os.environ), IndexSettings())
    try:
        found = read_catalog(indexer.store).find(place.namespace, place.cluster, session).sessions
        for outcome in prebuild(indexer, found, CancelToken()):
            if outcome.error:
                return f"the session cannot be opened: {outcome.error}"
        summary = indexer.summaries.read(found[0]) if found else None
    finally:
        indexer.close()
    if summary is None or not summary.failures:
        return ""
    first = summary.failures[0]
    times = "once" if first.count == 1 else f"{first.count} times"
    return f"{first.name} failed {times}: {first.text or first.kind}"


def _say(text: str) -> None:
    click.echo(f"ray-history: {text}", err=True)
