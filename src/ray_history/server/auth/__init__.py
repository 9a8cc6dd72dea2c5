"""Authentication and access: who sends a request, and which clusters exist for them.

`Guard` stands before the application: without authentication it passes on only health checks, metrics and signing in.
Access is checked where sessions are found (`SessionCatalog`), so that no route can forget it. A session that a viewer
may not see is answered as if it did not exist.
"""

from ray_history.server.settings import AuthSettings

from .backends import AuthBackend, NoAuth
from .guard import Guard
from .login import Login
from .origin import AllowedHosts, is_local
from .settings import InvalidAuth, allowed_hosts, check_exposure, make_backend
from .viewer import EVERYBODY, Hidden, Viewer, display_name, is_authenticated, viewer_of

__all__ = [
    "EVERYBODY",
    "AllowedHosts",
    "AuthBackend",
    "AuthSettings",
    "Guard",
    "Hidden",
    "InvalidAuth",
    "Login",
    "NoAuth",
    "Viewer",
    "allowed_hosts",
    "check_exposure",
    "display_name",
    "is_authenticated",
    "is_local",
    "make_backend",
    "viewer_of",
]
