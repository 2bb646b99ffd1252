"""The id of what a sink writes into, where that is several topics: the id of each, by name.

Everywhere but in records it is one text, as the id of one topic is: two are equal if all topics are the same ones. The
text of several is JSON of names and ids, in the order of the names. No id of one topic or table begins like that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

_BEGINS = "{"


def joined(ids: Mapping[str, str]) -> str | None:
    """Of several topics, of which some may be missing; None where none is there."""
    return json.dumps(dict(sorted(ids.items())), separators=(",", ":")) if ids else None


def ids_of(text: str | None) -> dict[str, str] | None:
    """By name; None of one topic, whose name is not told, and where there is none."""
    if text is None or not text.startswith(_BEGINS):
        return None
    try:
        found = json.loads(text)
    except ValueError:
        # Somebody else's text, as in a status that was edited: the id of no topic, which none is taken for.
        return None
    return found if _are_ids(found) else None


def _are_ids(found: object) -> bool:
    """Of one topic at least."""
    return isinstance(found, dict) and bool(found) and all(isinstance(each, str) and each for each in found.values())


def to_record(text: str | None) -> str | dict[str, str] | None:
    """As it stands in a record."""
    found = ids_of(text)
    return text if found is None else found


def from_record(value: object) -> str | None:
    """What `to_record` gave.

    Raises:
        ValueError: it is no id.
    """
    if isinstance(value, dict):
        if not _are_ids(value):
            raise ValueError("has no text for each of its topics")
        return joined(value)
    if isinstance(value, str) and ids_of(value) is not None:
        raise ValueError("is no id of a topic")
    if value is None or isinstance(value, str):
        return value
    raise ValueError("is not text")


def to_status(text: str | None) -> dict[str, object]:
    """As it stands in a status: of several topics as a list, in the order of their names."""
    found = ids_of(text)
    if found is None:
        return {"dataTopicId": text}
    topics = [{"topic": name, "topicId": each} for name, each in sorted(found.items())]
    return {"dataTopicId": None, "dataTopics": topics}


def contains(text: str | None, topic_id: str) -> bool:
    """Whether it is, or has, the id of this one topic."""
    found = ids_of(text)
    return text == topic_id if found is None else topic_id in found.values()


def each_id(text: str | None) -> tuple[str, ...]:
    """Of one topic or of several, in the order of their names; none where there is none."""
    found = ids_of(text)
    if found is not None:
        return tuple(each for _, each in sorted(found.items()))
    return () if text is None else (text,)


def by_name(text: str | None, there: Mapping[str, str]) -> dict[str, str]:
    """The ids that are known, by name; `there`: those of now, by which the name of a single one is found."""
    found = ids_of(text)
    if found is not None:
        return found
    return {name: each for name, each in there.items() if each == text}


def merged(earlier: str | None, now: str | None, there: Mapping[str, str] | None) -> str | None:
    """What was noted, and what is to be noted too; `there`: the topics of now where a sink has several, else None."""
    if there is None:
        return now or earlier
    return joined({**by_name(earlier, there), **(ids_of(now) or {})}) or earlier


def changed(before: str | None, now: str | None) -> str:
    """Of ids that differ: which topic is not what it was, and how; of one topic only how."""
    old, new = ids_of(before), ids_of(now) or {}
    if old is None:
        return "deleted" if now is None else "re-created"
    gone = {name: "deleted" if name not in new else "re-created" for name, each in old.items() if new.get(name) != each}
    return " and ".join(f"{what} ({name})" for name, what in sorted(gone.items())) or "replaced"
