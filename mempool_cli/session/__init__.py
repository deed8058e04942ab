"""Hosts: processes that hold pools between commands, and the requests to them over a Unix socket.

`lifecycle` finds, starts and stops them, and gives a `client.SessionRunner`; `command` runs a program with a session
of its own. Importing this package alone imports none of them.
"""
