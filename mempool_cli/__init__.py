"""Create CUDA memory pools, grant and revoke peer access, and probe the access the driver really gives."""

__version__ = "0.1.0"
