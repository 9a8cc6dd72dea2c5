"""Messages of the object store client become errors of the archive."""

from __future__ import annotations

import pytest
from obstore.exceptions import GenericError, PermissionDeniedError

from ray_history.archive.errors import ArchiveError, Denied, Misconfigured, NotFound, Unreachable
from ray_history.archive.stores.failures import Hints, classify, first_line

HINTS = Hints("the-bucket", "the-endpoint", "the-region", "the-credentials")


@pytest.mark.parametrize(
    ("error", "kind", "hint"),
    [
        (GenericError("<Code>NoSuchBucket</Code>"), NotFound, "the-bucket"),
        (FileNotFoundError("Object at location x not found"), NotFound, "not found"),
        (GenericError("error sending request for url (http://169.254.169.254/latest)"), Denied, "the-credentials"),
        (PermissionDeniedError("no"), Denied, "the-credentials"),
        (GenericError("<Code>SignatureDoesNotMatch</Code>"), Denied, "the-credentials"),
        (GenericError("301 Moved Permanently"), Misconfigured, "the-region"),
        (GenericError("Unable to decode service account file: unknown variant"), Misconfigured, "the-credentials"),
        (ValueError("invalid bucket name"), Misconfigured, "the-bucket"),
        (GenericError("connection refused"), Unreachable, "the-endpoint"),
        (OSError("broken pipe"), Unreachable, "the-endpoint"),
    ],
)
def test_each_message_names_the_setting_to_check(error: Exception, kind: type[ArchiveError], hint: str) -> None:
    found = classify("s3://b", HINTS, "reading k from", error)
    assert type(found) is kind
    assert hint in str(found)
    assert str(found).startswith("reading k from s3://b: ")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("one\n  two", "one two"),
        ("short\n\nDebug source:\nlong", "short"),
        ("x <Code>Slow</Code><Message>Slow down</Message> y", "Slow (Slow down)"),
        ("Generic error: Error performing GET http://h/k?X-Sig=1 in 2s - Server error", "GET http://h/k: Server error"),
        ("x" * 400, "x" * 297 + "..."),
    ],
)
def test_a_long_message_becomes_one_line_without_signatures(text: str, line: str) -> None:
    assert first_line(text) == line
