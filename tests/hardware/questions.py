"""What no document says about a device's memory that another one accesses, asked of the driver: a JSON line a question.

Each question has a process of its own, since some faults end what a process can do with a device. `--list` names
them. Both the checkout and its tests/ have to be on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from mempool_cli.child import Reports, run_trial
from mempool_cli.driver.cuda import CudaDriver
from mempool_cli.driver.port import HOST_LOCATION, device_location
from mempool_cli.driver.trace import TracedDriver

import about_data as data
import about_handles as handles
import about_permission as permission
from two_sides import Answer, TwoSides

ALL: tuple[Callable[[TwoSides], Answer], ...] = (
    *(permission.context, permission.capability, permission.read_only, permission.duplicates, permission.cost),
    *(handles.recycled, handles.recycled_allocated, handles.order, handles.order_granted),
    *(data.copies, data.copies_granted, data.memset, data.allocation, data.revoke_under_kernel),
)
QUESTIONS = {each.__name__.replace("_", "-"): each for each in ALL}


def answer(payload: bytes, reports: Reports) -> bytes:
    """In the child: name, location of the owner and accessor as JSON -> the answer."""
    name, (kind, number), accessor = json.loads(payload)
    driver: Any = TracedDriver(CudaDriver(), lambda line: None, reports.at)
    driver.init()
    owner = HOST_LOCATION if kind == HOST_LOCATION.type else device_location(number)
    return json.dumps(QUESTIONS[name](TwoSides(driver, owner, accessor))).encode()


def main() -> int:
    """0 when each question has an answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("question", nargs="*", choices=[[], *QUESTIONS], help="only these (default: all)")
    parser.add_argument("--owner", default="0", help="of the pools: a device, or host (default: 0)")
    parser.add_argument("--accessor", type=int, default=1, help="the device that accesses them (default: 1)")
    parser.add_argument("--limit", type=float, default=30, help="seconds for a question (default: 30)")
    parser.add_argument("--list", action="store_true", help="say what is asked")
    given = parser.parse_args()
    if given.list:
        for name, question in QUESTIONS.items():
            print(f"{name:<20} {question.__doc__}")
        return 0
    owner = HOST_LOCATION if given.owner == "host" else device_location(int(given.owner))
    failed = False
    for name in given.question or QUESTIONS:
        outcome = run_trial("questions:answer", json.dumps([name, owner, given.accessor]).encode(), limit=given.limit)
        line: Answer = {"question": name, "owner": given.owner, "accessor": given.accessor}
        if outcome.result is None:
            failed = True
            line |= {"error": outcome.end, "words": outcome.words}
        else:
            line["answer"] = json.loads(outcome.result)
        print(json.dumps(line), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
