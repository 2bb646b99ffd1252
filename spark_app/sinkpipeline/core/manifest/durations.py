"""Durations such as `1m30s`, read by one parser. Refused: signs, fractions, blanks, bare numbers, over a year."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from sinkpipeline.core.manifest.problems import refuse

PATTERN = r"^([0-9]+(ms|s|m|h)){1,4}$"
"""The schema of the resource has it too."""

_WHOLE = re.compile(PATTERN.strip("^$"))
_PART = re.compile(r"([0-9]+)(ms|s|m|h)")
_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}

_MAX_TEXT = 64
MAX_MILLISECONDS = 365 * 24 * _MILLISECONDS["h"]
"""Nobody means a longer one, and Spark's and librdkafka's own limits are not far above."""


def parse_duration(text: str) -> int:
    """The milliseconds of a duration.

    Raises:
        ValueError: the text is no duration, or a longer one than a year.
    """
    if len(text) > _MAX_TEXT or not _WHOLE.fullmatch(text):
        raise ValueError("write 1 to 4 whole numbers with a unit of ms, s, m or h, such as 30s or 1m30s")
    milliseconds = sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
    if milliseconds > MAX_MILLISECONDS:
        raise ValueError("use a duration of at most 8760h, a year")
    return milliseconds


@dataclass(frozen=True, order=True)
class Duration:
    """A length of time in whole milliseconds; its text is the shortest that the parser reads back."""

    milliseconds: int

    @classmethod
    def parse(cls, text: str) -> "Duration":
        """Raises ValueError as `parse_duration` does."""
        return cls(parse_duration(text))

    @property
    def seconds(self) -> float:
        return self.milliseconds / 1000

    @override
    def __str__(self) -> str:
        rest, text = self.milliseconds, ""
        for unit, size in _MILLISECONDS.items():
            number, rest = divmod(rest, size)
            if number:
                text += f"{number}{unit}"
        return text or "0s"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(
            _validated,
            core_schema.str_schema(strict=True),
            serialization=core_schema.to_string_ser_schema(),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "minLength": 2, "maxLength": _MAX_TEXT, "pattern": PATTERN}


def _validated(text: str) -> Duration:
    try:
        return Duration.parse(text)
    except ValueError as error:
        refuse(str(error))


def _positive(duration: Duration) -> Duration:
    if duration.milliseconds == 0:
        refuse("use a duration longer than 0s")
    return duration


PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
