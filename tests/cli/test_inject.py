"""`ray-history inject`."""

from __future__ import annotations

import pytest

from ray_history.inject.inject import inject
from tests.cli.installed import run
from tests.inject.test_inject import HEAD, S3, collectors, variables


def test_standard_input_is_read() -> None:
    printed = run("inject", "-f", "-", "--storage", "s3://history", text=HEAD)
    assert (printed.returncode, printed.stderr) == (0, "")
    assert printed.stdout == inject(HEAD, S3)


def test_variables_come_from_secrets_and_the_command_line() -> None:
    printed = run("inject", "-f", "-", "--env-from", "secret/keys", "--env", "S3_ENDPOINT=http://a:1/?x=y", text=HEAD)
    (container,) = collectors(printed.stdout)
    assert container["envFrom"] == [{"secretRef": {"name": "keys"}}]
    assert variables(container)["S3_ENDPOINT"] == "http://a:1/?x=y"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-f", "/nonexistent.yaml", "--storage", "s3://b"],
        ["-f", "-"],
        ["-f", "-", "--storage", "http://b"],
        ["-f", "-", "--storage", "s3://b", "--env", "novalue"],
        ["-f", "-", "--storage", "s3://b", "--env-from", "pod/x"],
        ["-f", "-", "--storage", "s3://b", "--events-port", "80"],
    ],
)
def test_wrong_usage_exits_with_2(arguments: list[str]) -> None:
    printed = run("inject", *arguments, text=HEAD)
    assert printed.returncode == 2
    assert printed.stdout == ""
    assert "Error: " in printed.stderr
    assert "Traceback" not in printed.stderr


@pytest.mark.parametrize("option", ["--pvc", "--claim"])
def test_a_claim_is_mounted_for_an_archive_in_a_directory(option: str) -> None:
    printed = run("inject", "-f", "-", "--storage", "file:///archive", option, "shared", text=HEAD)
    (container,) = collectors(printed.stdout)
    assert {"name": "ray-history-archive", "mountPath": "/archive"} in container["volumeMounts"]
