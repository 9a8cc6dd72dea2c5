"""The log files of a node: in the archive while they are written, so that nothing is lost with the node.

Every interval the bytes appended to any file go out as one bundle of tails. A file that was rotated or moved is stored
whole under its new name, all files are at the end; bundles whose bytes stand in whole objects are deleted. What stands
in the archive is never destroyed by what happens on the disk.

The modules, each knowing only those before it:

    tree        the disk: which files there are, and open descriptors of those that grow
    positions   how far each file is in the archive, over restarts: the state file
    objects     the archive: the whole objects of a node
    bundles     the archive: the tails of a node
    following   what happened to the files since the last look
    keeping     what is left of files that are no more
    wholes      files stored whole, without destroying what stands there
    recovery    after a start: the archive may be ahead of the state file
    shipping    one node in one session: all of the above, in order
    sessions    whatever session runs, and those that ended; nodes that came one after another
"""

from __future__ import annotations

from .sessions import SessionLogs
from .shipper import LogShipper

__all__ = ["LogShipper", "SessionLogs"]
