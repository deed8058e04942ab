"""A machine in memory that answers as the CUDA driver was measured to answer; docs/driver-notes.md has the facts."""
