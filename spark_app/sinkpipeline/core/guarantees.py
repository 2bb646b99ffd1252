"""What holds of the guarantee of all sinks, for a condition: its status, reason and message."""

from __future__ import annotations

from collections.abc import Iterable

from sinkpipeline.core.progress import Progress


def exactly_once(sinks: Iterable[tuple[str, bool, Progress | None]]) -> tuple[str, str, str]:
    """The condition ExactlyOnce; of each sink its name, whether it is ExactlyOnce, and its progress where known."""
    known = list(sinks)
    metas = [(name, found.meta) for name, is_strong, found in known if is_strong and found is not None]
    restored = [
        f"{name}: the rows of at most {meta.restored} records may be duplicated"
        for name, meta in metas
        if meta is not None and meta.restored is not None
    ]
    lost = [
        f"{name}: {meta.rolled_back} rows were lost by the sink, with their progress"
        for name, meta in metas
        if meta is not None and meta.rolled_back is not None
    ]
    facts = "; ".join([*restored, *lost])
    if restored:
        return "Unknown", "ProgressRestored", f"the progress was restored from an earlier status; {facts}"
    if lost:
        return "Unknown", "SinkRolledBack", f"what a sink had lost was delivered again; {facts}"
    weak = [name for name, is_strong, _ in known if not is_strong]
    if weak:
        return "False", "AtLeastOnceRequested", f"deliveryGuarantee is AtLeastOnce for {', '.join(weak)}"
    return "True", "Transactional", ""
