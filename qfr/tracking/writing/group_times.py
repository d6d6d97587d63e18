"""What earlier walks took: seconds and episodes, from the metrics of finished runs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice

from qfr.tracking.reading.search import is_complete, search
from qfr.tracking.store import Store

# Newest runs of a model and preset that are looked at.
_MOST_RUNS = 200


@dataclass(frozen=True)
class WalkTime:
    """One walk: a clean pass, or fault episodes, or both, played in one go."""

    model: str
    quant: str
    host: str
    device: str
    n_threads: int
    streams: int
    seconds: float
    # Wall time of the walk.
    episodes: int
    # That it played.


def walk_times(store: Store, model: str, quant: str) -> tuple[WalkTime, ...]:
    """Finished walks of a model at a preset, the newest first.

    Cells of one walk carry the same work: the same clean pass and the same wall time.

    Raises
    ------
    TrackingError
        The store does not answer.
    """
    condition = f"params.model = '{_plain(model)}' and params.quant = '{_plain(quant)}'"
    episodes: dict[tuple[str, float], int] = defaultdict(int)
    found: dict[tuple[str, float], WalkTime] = {}
    for run in islice(search(store, condition), _MOST_RUNS):
        tags, metrics = run.data.tags, run.data.metrics
        seconds = metrics.get("work.wall_seconds")
        if not is_complete(run) or not seconds or not metrics.get("episodes"):
            continue
        key = (tags.get("qfr.clean_id", ""), seconds)
        episodes[key] += int(metrics["episodes"])
        found.setdefault(
            key,
            WalkTime(
                model=model,
                quant=quant,
                host=tags.get("qfr.host", ""),
                device=tags.get("qfr.device", ""),
                n_threads=int(tags.get("qfr.n_threads", "0")),
                streams=int(tags.get("qfr.streams", "1")),
                seconds=seconds,
                episodes=0,
            ),
        )
    return tuple(_with_episodes(one, episodes[key]) for key, one in found.items())


def _with_episodes(one: WalkTime, episodes: int) -> WalkTime:
    return WalkTime(
        one.model, one.quant, one.host, one.device, one.n_threads, one.streams, one.seconds, episodes
    )


def _plain(text: str) -> str:
    """Names and presets hold no quotes; what does is looked for without them."""
    return text.replace("'", "").replace('"', "")
