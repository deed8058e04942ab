"""One module a bug, with its description in BUG. A new one is found by being here."""
