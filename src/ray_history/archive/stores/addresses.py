"""Reads addresses and flags out of storage settings."""

from __future__ import annotations

import ipaddress
import logging
from urllib.parse import urlsplit

from ray_history.archive.errors import Misconfigured

logger = logging.getLogger(__name__)

DEFAULT_BUCKET = "ray-historyserver"
"""As in KubeRay."""

_TRUE = {"1", "t", "true"}
_FALSE = {"0", "f", "false"}


def endpoint_url(text: str, setting: str, *, plain: bool) -> str | None:
    """`host:port` or a URL, as a URL; None if it is empty."""
    text = text.strip().rstrip("/")
    if not text:
        return None
    if "://" not in text:
        text = ("http://" if plain else "https://") + text
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if not valid:
        raise Misconfigured(f"{setting} {text!r} is not an address: write host:port or http(s)://host:port")
    return text


def boolean(text: str, setting: str) -> bool | None:
    """A flag as Go reads it; None if it is empty, or malformed: KubeRay's programs run with that, too."""
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    if lowered:
        logger.warning("%s is %r: write true or false; using the default", setting, text)
    return None


def clean_root(path: str) -> str:
    """A prefix without empty segments."""
    pieces = [piece for piece in path.split("/") if piece]
    if any(piece in (".", "..") for piece in pieces):
        raise Misconfigured(f"the storage prefix {path!r} must not contain '.' or '..'")
    return "/".join(pieces)


def bucket_and_root(bucket: str, root: str) -> str:
    return f"{bucket}/{root}" if root else bucket


def is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def with_bucket_host(endpoint: str, bucket: str) -> str:
    """`https://bucket.host` for `https://host`; unchanged if it names the bucket already or is an IP address."""
    parts = urlsplit(endpoint)
    if parts.netloc.startswith(f"{bucket}.") or is_ip_address(parts.hostname or ""):
        return endpoint
    return parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
