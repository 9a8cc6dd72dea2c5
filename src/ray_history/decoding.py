"""What can be wrong with bytes from outside that are decoded."""

from __future__ import annotations

import msgspec

DECODING_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
"""Everything that decoding foreign JSON raises. Besides errors of its own, msgspec raises a UnicodeDecodeError (a
ValueError) for a text that is not UTF-8, but only if it builds that text, and a RecursionError for deep nesting."""
