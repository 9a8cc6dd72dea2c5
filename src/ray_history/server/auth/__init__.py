"""Who looks, and what exists for them.

`Guard` stands before the application: without somebody known nothing passes but health, numbers and signing in. What
somebody may see is asked where sessions are found (`SessionCatalog`), so that no route can forget it: what they may not
see is not there.
"""

from ray_history.server.settings import AuthSettings

from .backends import Mode, Nobody
from .guard import Guard
from .login import Login
from .settings import WrongAuth, checked, is_loopback, make_mode
from .viewer import EVERYBODY, Hidden, Viewer, is_let_in, shown_name, viewer_of

__all__ = [
    "EVERYBODY",
    "AuthSettings",
    "Guard",
    "Hidden",
    "Login",
    "Mode",
    "Nobody",
    "Viewer",
    "WrongAuth",
    "checked",
    "is_let_in",
    "is_loopback",
    "make_mode",
    "shown_name",
    "viewer_of",
]
