"""The log files of a node: uploaded while they are written, so that nothing is lost with the node.

Every interval the bytes appended to any file are uploaded as one bundle of log tails, backlogs in turns. A rotated or
moved file is stored as a whole object under its new name, all other files when the session ends; bundles are deleted
once whole objects have their bytes. What happens on the disk never destroys anything in the archive, with one
exception: of a file that is rewritten in place again and again, a few former contents are kept.

The modules, each importing only those before it:

    scanner        the disk: the files, and open descriptors of those that grow
    state          how far each file is in the archive, across restarts: the state file
    objects        the archive: the whole objects of a node
    bundles        the archive: the log tails of a node
    tracker        what happened to the files since the last scan
    preservation   the content of files that no longer exist
    full_uploads   files stored as whole objects, without destroying existing ones
    turns          whose turn it is to be uploaded
    recovery       after a start: the archive may be ahead of the state file
    shipper        one node in one session: all of the above, in order
    claims         one collector at a time uploads the log files of a session
    sessions       the current session and ended ones; successive nodes
"""

from __future__ import annotations

from .sessions import SessionLogs
from .shipper import LogShipper

__all__ = ["LogShipper", "SessionLogs"]
