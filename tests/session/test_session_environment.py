"""Device numbers are refused when they would mean other cards."""

from __future__ import annotations

import pytest

from mempool_cli.errors import Problem
from mempool_cli.model import Answer, Notice, PoolList
from mempool_cli.requests import (
    AnyRequest,
    Create,
    Destroy,
    Devices,
    Grant,
    List,
    Probe,
    Revoke,
    SetCurrent,
    Show,
)
from mempool_cli.session import environment
from mempool_cli.session.environment import Environment

from .hosts import failure

HERE = Environment(None, None)
UUID = "GPU-8fc8b5a0-0000-4000-8000-000000000001"


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Grant(pool="0", to=("1", UUID)), ["0", "1"]),
        (Grant(pool="training", to=("1-3",)), ["1-3"]),
        (Revoke(pool="default:0", devices=(UUID,)), ["default:0"]),
        (Probe(pools=("current:1", "pool-1")), ["current:1"]),
        (Create(location="0", name="pool-1"), ["0"]),
        (Create(location="host", to=("1,2",)), ["1,2"]),
        (Show(pool="12"), ["12"]),
        (SetCurrent(pool="0"), ["0"]),
        (Destroy(pools=("0", "a")), ["0"]),
    ],
)
def test_numbers(request_: AnyRequest, words: list[str]) -> None:
    assert environment.numbered(request_) == words
    environment.check(request_, HERE, HERE, "session default")
    assert failure(lambda: environment.check(request_, Environment("1,0", None), HERE, "x")).exit == 5


@pytest.mark.parametrize(
    "request_",
    [
        Devices(),
        List(),
        Probe(),
        Grant(pool="pool-1", to=(UUID, "MIG-1", "0000:1b:00.0", "00000000:1B:00.0", "all", "peers")),
        Create(location=UUID),
        Create(location="numa:0"),
        Probe(pools=(f"default:{UUID}",)),
    ],
)
def test_other_names_always_work(request_: AnyRequest) -> None:
    environment.check(request_, Environment("1,0", "PCI_BUS_ID"), HERE, "session default")


def test_an_answer_without_numbers_of_the_clients_is_marked() -> None:
    first = Notice("first", "stays")
    answer = Answer(result=PoolList(pools=(), warnings=(first,)))
    assert environment.warned(answer, HERE, HERE, "session default") is answer
    failed = Answer(failure=Problem(code="usage", message="no"))
    assert environment.warned(failed, Environment("3", None), HERE, "session default") is failed
    marked = environment.warned(answer, Environment("3", None), Environment("1,2", None), "session default")
    assert marked.result == PoolList(
        pools=(),
        warnings=(
            first,
            Notice(
                "other-environment",
                "device numbers are those of session default:"
                " CUDA_VISIBLE_DEVICES is '1,2' in session default, and '3' here",
            ),
        ),
    )


def test_the_message_shows_both_sides() -> None:
    host = Environment("0,1", None)
    problem = failure(lambda: environment.check(Show(pool="0"), Environment("", "PCI_BUS_ID"), host, "session default"))
    assert problem.code == "other-environment"
    assert problem.message == (
        "0: device numbers may mean other cards: CUDA_VISIBLE_DEVICES is '0,1' in session default, and '' here;"
        " CUDA_DEVICE_ORDER is not set in session default, and 'PCI_BUS_ID' here"
    )
