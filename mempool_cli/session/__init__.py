"""Hosts: processes that hold pools between commands, and the requests to them over a Unix socket.

`lifecycle` finds, starts and stops them, and gives a `client.SessionRunner`; `command` runs a program with a session
of its own. Importing this package alone imports none of them.
"""

IDLE_SECONDS = 1800
"""How long a session lives unused, unless it is told otherwise."""

MAX_IDLE_SECONDS = 365 * 86400
"""The longest that it can be told: beyond it, times cannot be written."""
