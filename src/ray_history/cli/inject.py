"""`ray-history inject`: add the collector to Kubernetes manifests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TextIO
from urllib.parse import urlsplit

import click

from ray_history import __version__
from ray_history.archive.stores.registry import URL_FORMS, URL_SCHEMES

from .options import SettingOption


def _storage_url(_context: Any, _option: Any, url: str | None) -> str | None:
    """Checks that a pod can use the URL; the bucket is not accessed."""
    if url and urlsplit(url).scheme not in URL_SCHEMES:
        raise click.BadParameter(f"{url!r} is not a supported archive URL: use one of {URL_FORMS}")
    return url


def _pairs(separator: str, pattern: str) -> Callable[[Any, Any, tuple[str, ...]], tuple[tuple[str, str], ...]]:
    """A callback that splits values of the form `first<separator>second`."""

    def split(_context: Any, option: click.Parameter, texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
        for text in texts:
            if not re.fullmatch(pattern, text, re.DOTALL):
                raise click.BadParameter(f"{text!r} is not of the form {option.metavar}")
        return tuple((first, second) for first, _, second in (text.partition(separator) for text in texts))

    return split


@click.command("inject")
@click.option("-f", "--file", type=click.File(encoding="utf-8"), required=True, help="YAML file; - reads stdin.")
@click.option(
    "--storage",
    envvar="RAY_HISTORY_STORAGE",
    show_envvar=True,
    callback=_storage_url,
    metavar="URL",
    help=f"Archive URL: {URL_FORMS}.",
)
@click.option("--image", default=f"ray-history:{__version__}", show_default=True, help="Container image.")
@click.option(
    "--env",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_pairs("=", r"[A-Za-z_][A-Za-z0-9_]*=.*"),
    help="Environment variable of the collector, such as S3_ENDPOINT; can be repeated.",
)
@click.option(
    "--env-from",
    multiple=True,
    metavar="KIND/NAME",
    callback=_pairs("/", r"(secret|configmap)/[a-z0-9]([a-z0-9.-]*[a-z0-9])?"),
    help="secret/NAME or configmap/NAME with environment variables, such as access keys; can be repeated.",
)
@click.option(
    "--pvc",
    cls=SettingOption,
    former_flags=("--claim",),
    metavar="NAME",
    help="PersistentVolumeClaim to mount, for an archive at file:///dir.",
)
@click.option(
    "--events-port",
    "port",
    type=click.IntRange(1024, 65535),
    default=8084,
    show_default=True,
    help="Port to which Ray posts its events.",
)
def command(file: TextIO, **flags: Any) -> None:
    """Add the collector to a RayCluster, RayJob or RayService.

    Prints the manifests of FILE with the collector as a sidecar of every Ray pod.

    \b
      ray-history inject -f raycluster.yaml --storage s3://bucket | kubectl apply -f -
    """
    from ray_history.inject.inject import CannotInject, Sidecar, inject

    try:
        click.echo(inject(file.read(), Sidecar(**flags)), nl=False)
    except (CannotInject, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file.name}: {error}") from None
