"""Whether access really works, byte by byte, beside what the driver says of it."""
