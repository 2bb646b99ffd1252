"""What a session must have set, whatever the manifest, the environment or a file of defaults says."""

from __future__ import annotations

from typing import Final

REQUIRED_CONF: Final = {
    # Casts between texts and times in expressions use the session's zone: a replay elsewhere must give the same row.
    "spark.sql.session.timeZone": "UTC",
    # An overflow, or a text that is no number, is an error and no other value.
    "spark.sql.ansi.enabled": "true",
    # ${env:HOSTNAME} would be another text in another pod.
    "spark.sql.variable.substitute": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.parser.escapedStringLiterals": "false",
}
"""A record gives the same row wherever and whenever it is transformed."""
