"""Command lines of containers, parsed by the program itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ray_history.cli.kuberay import with_two_dashes
from ray_history.cli.main import ray_history as program
from ray_history.collector.settings import CollectorSettings
from ray_history.collector.settings import resolve as resolve_collector

POD = {"metadata.namespace": "default", "metadata.labels['ray.io/cluster']": "demo", "status.podIP": "10.0.0.1"}


def environment(container: Mapping[str, Any], configmaps: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The variables of a container; the values of Secrets are `secret`."""
    found: dict[str, str] = {}
    for source in container.get("envFrom", []):
        found |= configmaps.get(source.get("configMapRef", {}).get("name", ""), {})
    for entry in container.get("env", []):
        origin = entry.get("valueFrom", {})
        found[entry["name"]] = (
            POD[origin["fieldRef"]["fieldPath"]] if "fieldRef" in origin else entry.get("value", "secret")
        )
    return found


def parse(container: Mapping[str, Any], env: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The verb and the options in the command line of a container; raises for wrong usage."""
    words = [*container.get("command", ["collector"]), *container.get("args", [])]
    words = [re.sub(r"\$\((\w+)\)", lambda match: env[match[1]], word) for word in words]
    words = [re.sub(r"=/etc/ray-history/.*", f"={Path(__file__)}", word) for word in words]
    start = {"collector": ["collect"], "historyserver": ["serve"], "ray-history": []}[words[0]]
    words = start + with_two_dashes(words[1:])
    above = program.make_context("ray-history", list(words))
    name, command, rest = program.resolve_command(above, [*above._protected_args, *above.args])
    assert isinstance(command, click.Command)
    return name or "", command.make_context(name, rest, parent=above).params


def collector_settings(container: Mapping[str, Any], env: Mapping[str, str]) -> CollectorSettings:
    name, options = parse(container, env)
    assert name == "collect"
    return resolve_collector(options, env)
