"""What a start does about the topic of dead letters."""

from __future__ import annotations

from dataclasses import dataclass

from sinkpipeline.core.topics import Topic, TopicRequest, drift


@dataclass(frozen=True, kw_only=True)
class DeadLetterDecision:
    create: bool
    drift: tuple[str, ...] = ()


def decide_dead_letters(topic: Topic | None, request: TopicRequest, *, auto_create: bool) -> DeadLetterDecision:
    """What a start does about the dead-letter topic: nothing is refused, as no record may ever need it."""
    if topic is None:
        return DeadLetterDecision(
            create=auto_create,
            drift=() if auto_create else (f"{request.name} does not exist, and autoCreate is false",),
        )
    return DeadLetterDecision(create=False, drift=(*drift(request, topic), *_forgets_letters(topic)))


def _forgets_letters(topic: Topic) -> tuple[str, ...]:
    """Of a key a compacted topic keeps only the last record, and it takes none without a key."""
    if "compact" not in topic.config.get("cleanup.policy", ""):
        return ()
    return (f"{topic.name} is compacted: of the dead letters of a key all but the last one are lost",)
