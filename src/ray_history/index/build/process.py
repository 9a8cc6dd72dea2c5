"""A build process: takes orders from the connection whose file descriptor is its first argument, one after the other.

Invariants:
* it writes only below the directory that is its second argument (see confinement.py);
* it ends when its server ends, however that ends: the connection is then closed;
* standard output is not used, and signals of the terminal do not reach it: the server decides when it ends.
"""

from __future__ import annotations

import logging
import os
import pickle
import queue
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

from ray_history.archive.errors import ArchiveError
from ray_history.history.build.builder import ready_database
from ray_history.history.engine import Limits
from ray_history.index.indexer import Indexer
from ray_history.index.locks import CancelToken
from ray_history.index.manifest import encode as encode_manifest

from . import messages
from .confinement import confine
from .order import BuildFailed, BuildOrder, Progress
from .steps import BuildHere

logger = logging.getLogger(__name__)

_OOM_SCORE = 500
"""Where memory is short the kernel should end a build, and not the server."""


class _Forward(logging.Handler):
    """Sends log records to the server, which knows the format of the log."""

    def __init__(self, send: Callable[[messages.Message], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(messages.Logged(record.levelno, record.name, self.format(record)))


class BuildProcess:
    """Takes orders, and sends progress and results."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._orders = queue.SimpleQueue[bytes]()
        self._sending = threading.Lock()
        logging.getLogger().handlers[:] = [_Forward(self._send)]

    def run(self) -> None:
        indexer: Indexer = pickle.loads(self._connection.recv_bytes())()  # noqa: S301  # from our own server
        threading.Thread(target=self._work, args=[indexer], name="orders", daemon=True).start()
        while True:  # this thread only waits, and so notices at once when the server ends
            self._orders.put(self._connection.recv_bytes())

    def _work(self, indexer: Indexer) -> None:
        while True:
            order: BuildOrder
            limits: Limits
            database = ready_database(indexer.limits.threads)  # before it is needed
            order, limits, processor_seconds, niceness = pickle.loads(self._orders.get())  # noqa: S301  # our server's
            _limit_processor_time(processor_seconds)
            os.nice(niceness)
            self._send(self._result(order, BuildHere(indexer.store, limits, database)))

    def _result(self, order: BuildOrder, builds: BuildHere) -> messages.Message:
        try:
            return messages.Built(encode_manifest(builds.build(order, self._report, CancelToken())))
        except ArchiveError as error:
            return messages.ArchiveFailed(type(error).__name__, str(error))
        except BuildFailed as error:
            return messages.NotBuilt(error.reason, str(error))
        except OSError as error:
            return messages.SystemFailed(error.errno or 0, error.strerror or str(error))
        except Exception as error:  # whatever it is, the server must learn of it
            logger.exception("%s cannot be built", order.sources.files.session.name)
            return messages.NotBuilt("error", f"{type(error).__name__}; see the server log")

    def _report(self, progress: Progress) -> None:
        self._send(messages.Progressed(**asdict(progress)))

    def _send(self, message: messages.Message) -> None:
        body = messages.encode(message)
        with self._sending:
            self._connection.send_bytes(body)


def _limit_processor_time(seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))


def run(connection: Connection, directory: Path) -> None:
    """Be the build process at this end of a connection, until the server ends. It writes below the directory only."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError):  # only Linux has the file, and some sandboxes do not let it be written
        Path("/proc/self/oom_score_adj").write_text(str(_OOM_SCORE))
    try:
        confine(directory)  # before there are other threads: it holds for those that this one starts
    except OSError as error:  # some sandboxes allow a part of it only
        logger.warning("this build process can write wherever its server can: %s", error)
    try:
        BuildProcess(connection).run()
    except (EOFError, OSError):
        os._exit(0)  # at once: nobody waits for the threads any more


if __name__ == "__main__":
    run(Connection(int(sys.argv[1])), Path(sys.argv[2]))
