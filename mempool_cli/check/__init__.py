"""Whether a machine is as it should be: checks, each of which ends in exactly one of four ways."""
