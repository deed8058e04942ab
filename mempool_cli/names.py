"""What pools and sessions may be called."""

from __future__ import annotations

import re

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
