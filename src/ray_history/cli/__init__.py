"""The command `ray-history`, and the drop-in mains of KubeRay's two binaries."""

from .command import collector_main, historyserver_main, main

__all__ = ["collector_main", "historyserver_main", "main"]
