"""Commands over tables between the loads of a chain: killed once, then run to their end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone

from chaos import FINE, LONGEST, Chain
from kill_runs import KEPT

SECONDS = 20.0
"""About how long a command takes, most of it the start of Spark."""


def operate(chain: Chain) -> str:
    """Run one of the commands that the place offers; return its name, or why there was none."""
    offered = [name for name, (is_offered, _) in COMMANDS.items() if is_offered(chain)]
    if not offered:
        return ""
    name = chain.chance.choice(offered)
    COMMANDS[name][1](chain)
    chain.figures.faults[name] += 1
    chain.figures.faults["kill"] += 1
    return name


def maintain(chain: Chain) -> None:
    """Compact the tables: no row changes."""
    _killed_then_whole(chain, ["maintain"])
    chain.check()


def rewind(chain: Chain) -> None:
    """Return to an earlier moment: the tables have what its STATE covers, and no more."""
    moment = chain.chance.choice(chain.moments)
    at = datetime.fromtimestamp(moment, timezone.utc).isoformat()
    out = _killed_then_whole(chain, ["rewind"], "--to", at, "--force")
    [state] = out.splitlines()
    chain.moments = [other for other in chain.moments if other <= moment]
    numbers, covered = chain.numbers(), chain.source.covered(state)
    lost = covered - set(numbers)
    over = Counter({n: times for n, times in numbers.items() if n >= 0}) - Counter(covered)
    assert not lost and not over - chain.spare, (at, lost, over, chain.story)
    chain.state, chain.inserted = state, {n for n in numbers if n < 0}
    chain.story.append(f"rewind to {at}: {len(covered)} rows")


def repair(chain: Chain) -> None:
    """Let another program damage a table, and repair it from the source."""
    assert chain.place.damage is not None
    chain.place.damage(chain.number)
    tap = [*chain.programs.tap_command(chain.source.settings()), "--streams", KEPT]
    data, _ = chain.fork("tap", tap).communicate(b"", LONGEST)
    _killed_then_whole(chain, ["verify"], "--repair", "--force", data=data)
    chain.check()


def _killed_then_whole(
    chain: Chain, verb: Sequence[str], *options: str, data: bytes = b""
) -> bytes:
    """Run a command of the target and kill it; then run it again; return its output."""
    command = [*chain.programs.target_command(chain.settings), *options]
    killed = chain.fork("target", command, verb=verb)
    timer = threading.Timer(SECONDS * 1.2 * chain.chance.random(), killed.kill)
    timer.start()
    killed.communicate(data, LONGEST)
    timer.cancel()
    chain.place.settle()
    whole = chain.fork("target", command, verb=verb)
    out, log = whole.communicate(data, LONGEST)
    assert whole.wait() == FINE, (verb, log.decode())
    assert b"Traceback" not in log, log.decode()
    return out


def _is_lake(chain: Chain) -> bool:
    return chain.place.store.name in {"delta", "iceberg"}


COMMANDS: Mapping[str, tuple[Callable[[Chain], bool], Callable[[Chain], None]]] = {
    "maintain": (_is_lake, maintain),
    "rewind": (lambda chain: _is_lake(chain) and bool(chain.moments), rewind),
    "repair": (lambda chain: chain.place.damage is not None, repair),
}
