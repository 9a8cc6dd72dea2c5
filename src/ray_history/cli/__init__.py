"""The command line: one module per verb with its options beside it, and the drop-in mains of KubeRay's two binaries."""

from .kuberay import collector_main, historyserver_main
from .main import main

__all__ = ["collector_main", "historyserver_main", "main"]
