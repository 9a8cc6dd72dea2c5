"""The spool: where a batch is kept from its acknowledgement until it is in the archive.

Invariants:
* One process owns the directory (a lock that dies with it). One thread appends; one thread seals, reads and removes.
* `append` returns after an fsync: from then on its bodies survive SIGKILL and power loss until `remove` is called.
  Records go only into a segment whose header and directory entry are durable, so a torn header means: no records.
* A segment is written once, front to back. After a failed write or fsync nothing more goes into it (the kernel may
  have dropped its pages and call the next fsync a success): it is cut back to its acknowledged end and sealed, and
  the next append opens another. So nothing acknowledged ever stands behind something torn.
* Opening seals every segment it finds and changes none of their bytes. What provably never was written whole (it runs
  past the end of the file, or is all zeros) is ignored. Any other bytes that do not match their checksum are never
  deleted: the bodies before them come out, then `remove` keeps the file aside as `<name>.corrupt`, for a human.
* Sequence and creation time grow from segment to segment, whatever the clock does, and never repeat. The newest
  segment with a durable header, the mark, carries both. `remove` empties the mark down to its header (which needs no
  space on a full disk) instead of deleting it; it goes when a newer header is durable. Opening counts on from the
  highest name and header, and first writes the mark's header again and syncs it: a sync alone proves nothing about
  pages of another process, whose own sync may have failed before.
* What was not acknowledged may come out too. Ray sends it again, and history counts an event once.

Format of `<sequence, 20 digits>.spool`, integers little-endian:

    8  magic and version    b"RAYSPOL" 0x01
    8  creation time        nanoseconds since 1970
    4  crc32 of the above
       records              4 length, 4 crc32 of the body, 4 crc32 of these 8 bytes, then the body

The length has its own checksum: a damaged one must not look like a record that was torn off at the end of the file.

`disk` is all that is asked of a file system, `segment` the bytes of one file, `recovery` what an earlier process left,
`spool` what an open spool does.
"""

from __future__ import annotations

from .disk import Disk
from .segment import MAX_BODY, Segment
from .spool import Pending, Spool, SpoolFull

__all__ = ["MAX_BODY", "Disk", "Pending", "Segment", "Spool", "SpoolFull"]
