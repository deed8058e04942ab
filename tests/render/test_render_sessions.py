from __future__ import annotations

from msgspec import structs

from mempool_cli.model import Answer, SessionList, SessionStatus, SessionStopped

from render_samples import emitted, out_of, session


def test_list() -> None:
    hung = structs.replace(session(name="hung"), expires=None, answering=False)
    shown = SessionList(sessions=(session(pools=("pool-1", "a")), session(name="ci", sim="4,fault=x"), hung))
    assert (
        out_of(Answer(result=shown))
        == """\
name     kind     pid   driver                       started               ends                  pools
default  session  4242  hardware                     2026-12-01 03:50 UTC  2026-12-01 04:20 UTC  pool-1, a
ci       session  4242  SIMULATED machine 4,fault=x  2026-12-01 03:50 UTC  2026-12-01 04:20 UTC  -
hung     session  4242  hardware                     2026-12-01 03:50 UTC  no answer             -
"""
    )
    assert out_of(Answer(result=SessionList(sessions=()))) == "no session runs\n"


def test_started() -> None:
    assert (
        out_of(Answer(result=SessionStatus(session=session(), started_now=True)))
        == """\
session default started (pid 4242)
  version  0.1.0
  driver   hardware
  started  2026-12-01 03:50 UTC
  ends     2026-12-01 04:20 UTC unless used, after 30 idle minutes, or on `mempool session stop`
  pools    none created
  blocks   GPU reset and MIG changes while it runs: it holds the devices open
"""
    )


def test_status_of_a_simulated_session() -> None:
    assert (
        out_of(Answer(result=SessionStatus(session=session(sim="4", pools=("pool-1", "b")))))
        == """\
simulated session default runs (pid 4242)
  version  0.1.0
  driver   SIMULATED machine 4
  started  2026-12-01 03:50 UTC
  ends     2026-12-01 04:20 UTC unless used, after 30 idle minutes, or on `mempool session stop`
  pools    pool-1, b
  blocks   nothing: it holds no hardware
"""
    )


def test_stop() -> None:
    held = session(pools=("pool-1", "pool-2"))
    assert out_of(Answer(result=SessionStopped(session=held))) == (
        "session default (pid 4242) stopped; destroyed its pools: pool-1, pool-2\n"
    )
    assert out_of(Answer(result=SessionStopped(session=session()))) == "session default (pid 4242) stopped\n"
    assert out_of(Answer(result=SessionStopped(session=session(sim="4")))) == (
        "simulated session default (pid 4242) stopped\n"
    )
    assert out_of(Answer(result=SessionStopped(session=held, killed=True))) == (
        "session default (pid 4242) was killed; it could not destroy its pools itself: pool-1, pool-2\n"
    )
    assert emitted(Answer(result=SessionStopped(session=held, not_destroyed=("pool-2",)))) == (
        4,
        "session default (pid 4242) stopped; destroyed its pools: pool-1; not destroyed: pool-2\n",
        "error: pool pool-2 could not be destroyed; it ended with the process [driver-refused]\n",
    )
    assert emitted(Answer(result=SessionStopped(session=held, not_destroyed=("pool-1", "pool-2")))) == (
        4,
        "session default (pid 4242) stopped; not destroyed: pool-1, pool-2\n",
        "error: pools pool-1, pool-2 could not be destroyed; they ended with the process [driver-refused]\n",
    )
