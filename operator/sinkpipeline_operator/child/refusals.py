"""Why an object of ours was not made, in the words that the API server and spark-submit have for it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sinkpipeline.core.texts import shortened

SUBMISSION_FAILED = "SubmissionFailed"
REFUSED = "ObjectRefused"
KUBEFLOW_MISSING = "KubeflowMissing"
TOO_LARGE = "ManifestTooLarge"

_PREFIX = "failed to run spark-submit: "
_IN_THREAD = "Exception in thread "
_CAUSED_BY = "Caused by: "
_MESSAGE, _STATUS = "Message: ", ". Received status: Status("
"""fabric8, Spark's client of the API server: the API server's own sentence stands between the two."""
_LEVELS = ("ERROR", "FATAL", "WARN", "INFO", "DEBUG", "TRACE")
_LONGEST = 700
"""Characters of a cause: the remedy must still fit into an event."""

_REASONS = (
    ("exceeded quota", "QuotaExceeded"),
    ("failed calling webhook", "WebhookUnavailable"),
    ("denied the request", "AdmissionRefused"),
    ("denied request", "AdmissionRefused"),
    ("violates podsecurity", "AdmissionRefused"),
    ("because it is being terminated", "NamespaceTerminating"),
    ("could not find the requested resource", KUBEFLOW_MISSING),
    ("404 page not found", KUBEFLOW_MISSING),
    # A ConfigMap's limit, etcd's, the API server's, and that of the connection between these two.
    ("too long: may not be more than", TOO_LARGE),
    ("request is too large", TOO_LARGE),
    ("request entity too large", TOO_LARGE),
    ("message larger than max", TOO_LARGE),
)
_REMEDIES = {
    "QuotaExceeded": "raise the quota of the namespace, or ask for less in spec.spark",
    "WebhookUnavailable": "make sure that the webhook's service runs; Kubeflow's webhook belongs to its Spark operator",
    "AdmissionRefused": "change what the message names, or the policy",
    "NamespaceTerminating": "nothing: the namespace is being deleted",
    KUBEFLOW_MISSING: "install Kubeflow's Spark operator and its CRDs",
    TOO_LARGE: "make the manifest smaller, such as its expressions and the values of spark.conf and topic.config: its "
    "driver reads it from a ConfigMap, which holds 1 MiB",
    REFUSED: "change what the message names; it is tried again",
}


def reason_of(words: str) -> str | None:
    """One CamelCase word; None where the words are of nothing that is known."""
    lower = words.lower()
    return next((reason for part, reason in _REASONS if part in lower), None)


def remedy_of(reason: str) -> str:
    return _REMEDIES[reason]


def cause(stderr: str) -> str:
    """The one line that says why, of what spark-submit wrote: lines of a log with their times, and a long stack.

    Without an exception it is the last line that is neither of a stack nor of a log; where all are, the last of a log.
    """
    lines = [line for line in stderr.rpartition(_PREFIX)[2].splitlines() if line.strip()]
    thrown = next((line for line in reversed(lines) if line.startswith(_IN_THREAD)), None)
    if thrown is None:
        return shortened(next(_plain(lines), ""), _LONGEST)
    _, _, named = thrown.removeprefix(_IN_THREAD).partition('" ')
    said = _sentence(named)
    causes = [line.removeprefix(_CAUSED_BY) for line in lines if line.startswith(_CAUSED_BY)]
    if not causes or _MESSAGE in named:
        return shortened(said, _LONGEST)
    # The last one is where the chain began.
    return shortened(f"{said}, caused by {_sentence(causes[-1])}", _LONGEST)


def _sentence(exception: str) -> str:
    """`a.b.SomeException: words`, without the package; of fabric8's, what the API server said."""
    kind, _, words = exception.strip().partition(": ")
    if _MESSAGE in words:
        return words.partition(_MESSAGE)[2].partition(_STATUS)[0]
    kind = kind.rpartition(".")[2]
    return f"{kind}: {words}" if words else kind


def _plain(lines: list[str]) -> Iterator[str]:
    written = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
    logged = {line: text for line in written if (text := _logged(line)) is not None}
    yield from (line.strip() for line in reversed(written) if line not in logged)
    yield from (logged[line] for line in reversed(written) if line in logged)


def _logged(line: str) -> str | None:
    """The text of a line of Spark's log, `26/11/22 10:00:00 WARN Utils: text`, without its time."""
    parts = line.split(" ", 3)
    if len(parts) == 4 and parts[2] in _LEVELS:  # noqa: PLR2004 - date, time, level, text
        return parts[3].strip()
    return None
