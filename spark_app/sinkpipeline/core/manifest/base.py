"""The base of every part of the manifest: immutable, hashable, strict, closed to unknown fields."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

INT32_MAX = 2**31 - 1


class Part(BaseModel):
    """One mapping of the manifest."""

    # hide_input_in_errors: should a ValidationError ever escape, it must not carry values into a log.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", alias_generator=to_camel, hide_input_in_errors=True
    )


class StringMap(Mapping[str, str]):
    """An immutable, hashable mapping of text to text.

    Its repr shows keys only: what people put into free-form options is not ours to log.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(sorted((values or {}).items()))

    @override
    def __getitem__(self, key: str) -> str:
        return self._values[key]

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    @override
    def __repr__(self) -> str:
        return f"StringMap({', '.join(self._values)})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        text = core_schema.str_schema(strict=True)
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.dict_schema(text, text),
            serialization=core_schema.plain_serializer_function_ser_schema(dict),
        )
