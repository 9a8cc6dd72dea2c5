"""`ray-history import`: bring sessions into an archive that no collector recorded."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ray_history.archive.settings import StorageOptions
from ray_history.local.places import Place

from .options import take, with_settings

if TYPE_CHECKING:
    from ray_history.local.importing import Imported


@click.command("import")
@with_settings(StorageOptions)
@click.option("--namespace", default="default", show_default=True, help="Namespace of the sessions.")
@click.option("--cluster", default="imported", show_default=True, help="Cluster of the sessions.")
@click.option(
    "--max-size",
    type=click.IntRange(min=1),
    default=20_480,
    show_default=True,
    metavar="MIB",
    help="Maximum size of what is unpacked from a tar file.",
)
@click.argument("paths", metavar="DIRECTORY|TAR...", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(paths: tuple[Path, ...], namespace: str, cluster: str, max_size: int, **options: str) -> None:
    """Import session directories of Ray, such as /tmp/ray/session_2026-11-20_10-31-02_342264_16443.

    For clusters that are gone and were never recorded. Give the directories of all nodes, or tar files with them. Only
    what log files tell is known of such a session; it has no events, so its tasks are unknown.
    """
    from ray_history.archive.layout import Cluster
    from ray_history.archive.stores import open_store
    from ray_history.local.importing import CannotImport, import_directory
    from ray_history.local.unpack import CannotUnpack

    place = Place.of(take(StorageOptions, dict(options)).or_default(os.environ), namespace, cluster)
    store = open_store(place.storage.resolve(os.environ))
    store.check(create=True)
    found: list[Imported] = []
    try:
        with tempfile.TemporaryDirectory(prefix="ray-history-") as work:
            for directory in _directories(paths, Path(work), max_size << 20):
                found.append(import_directory(store, Cluster(place.namespace, place.cluster), directory))
                click.echo(_describe(found[-1]))
    except (CannotImport, CannotUnpack) as error:
        raise click.ClickException(str(error)) from None
    click.echo("Their tasks are unknown, because no events were recorded.")
    for session in dict.fromkeys(imported.session for imported in found):
        click.echo(place.link(session))


def _directories(paths: Sequence[Path], work: Path, most_bytes: int) -> list[Path]:
    """The session directories: the given ones, and those in the given tar files."""
    from ray_history.local.unpack import CannotUnpack, unpack

    found: list[Path] = []
    for number, path in enumerate(paths):
        inside = [path] if path.is_dir() else unpack(path, work / str(number), most_bytes)
        if not inside:
            raise CannotUnpack(f"{path} has no session directory")
        found += inside
    return found


def _describe(imported: Imported) -> str:
    role = "head" if imported.is_head else "worker"
    how = "stored" if imported.is_new else "stored before:"
    return f"{imported.session}, {role} {imported.node[:8]}: {how} {imported.files} files, {imported.bytes:,} bytes"
