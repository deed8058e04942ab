"""A machine as a document, and what changed from one to another."""
