"""One collector at a time uploads the log files of a node in a session.

Two, such as a second sidecar in a pod, would move and replace each other's objects. A claim is an abstract socket: all
containers of a pod see it, it needs no file in Ray's directory, and it ends with its process.
"""

from __future__ import annotations

import errno
import logging
import socket
from pathlib import Path

logger = logging.getLogger(__name__)


class Claims:
    """The log directories that this process uploads, by node id."""

    def __init__(self) -> None:
        self._held: dict[tuple[Path, str], socket.socket] = {}
        self._refused: set[tuple[Path, str]] = set()

    def take(self, logs: Path, node: str) -> bool:
        """Whether this process may upload the directory as this node; warns once if another one does."""
        if (logs, node) in self._held:
            return True
        place = logs.stat()  # another container may know it by another path
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0ray-history-collector/{place.st_dev}/{place.st_ino}/{node}")
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                claim.close()
                self._refuse(logs, node)
                return False
            # Only Linux has abstract sockets. A claim only guards against a mistake.
            logger.debug("the log directory %s is not claimed: %s", logs, error)
        self._held[logs, node] = claim
        self._refused.discard((logs, node))
        return True

    def release(self, logs: Path) -> None:
        """Let another collector upload the directory."""
        for held in [each for each in self._held if each[0] == logs]:
            self._held.pop(held).close()

    def release_all(self) -> None:
        for logs, _ in list(self._held):
            self.release(logs)

    def _refuse(self, logs: Path, node: str) -> None:
        if (logs, node) not in self._refused:
            self._refused.add((logs, node))
            logger.warning("another collector uploads %s as node %s; this one waits until that one ends", logs, node)
