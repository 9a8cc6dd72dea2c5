"""The collector: stands beside a Ray node and keeps what it tells, writes and shows.

It takes Ray's exported events into a durable spool and ships them to the archive, follows the log files, and on the
head keeps the dashboard state that events do not carry. It knows nothing of how history is rebuilt or served.
"""
