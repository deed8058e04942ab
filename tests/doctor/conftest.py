from __future__ import annotations

from cli.conftest import mempool as mempool
from cli.conftest import mempool_process as mempool_process
from cli.conftest import this_package as this_package
from standin.conftest import standin as standin
