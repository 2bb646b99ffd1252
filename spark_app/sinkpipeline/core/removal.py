"""What a removal deletes: a data topic, only if this sink created it and no other sink uses it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sinkpipeline.core.errors import SinkPipelineError
from sinkpipeline.core.naming import SinkId, is_meta_key
from sinkpipeline.core.progress import Meta
from sinkpipeline.core.progress_records import decode_meta
from sinkpipeline.core.topic_ids import contains, ids_of


def newest_metas(records: Iterable[tuple[bytes | None, bytes | None, int]]) -> dict[str, Meta | None]:
    """By key, the newest `meta` of every sink that has one; None for one that this version can't read."""
    metas: dict[str, Meta | None] = {}
    for key, value, offset in records:
        text = (key or b"").decode(errors="replace")
        if not is_meta_key(text):
            continue
        if value is None:
            metas.pop(text, None)
            continue
        try:
            metas[text] = decode_meta(value, f"record {text} at offset {offset}")
        except SinkPipelineError:
            metas[text] = None
    return metas


def why_kept(sink: SinkId, topic_id: str, meta: Meta, others: Mapping[str, Meta | None]) -> str | None:
    """Why a data topic outlives the sink that delivers into it; None where it is to be deleted with it.

    Args:
        sink: whose data topic it is.
        topic_id: of the one that is there.
        meta: the sink's own.
        others: by key, every `meta` of the progress topic, the sink's own perhaps among them; None is unreadable.
    """
    if meta.created is None:
        # A seed from the status doesn't know it: docs/design/0008.
        why = (
            "it was there before, or an earlier release has restored the progress from the status"
            if meta.restored is None
            else "its progress was restored from the status, which does not remember who created the data topic"
        )
        return f"nothing says that this pipeline created it: {why}"
    if not contains(meta.created, topic_id):
        if ids_of(meta.created) is not None:
            return "nothing says that this pipeline created the one that is there"
        return "somebody has created it again since"
    for key, other in sorted(others.items()):
        if key == sink.meta_key:
            continue
        if other is None:
            return f"{key} in the progress topic can't be read, and may deliver into it"
        if contains(other.data, topic_id) or topic_id in other.former:
            return f"{other.owner} delivers into it, or has done so ({key})"
    return None
