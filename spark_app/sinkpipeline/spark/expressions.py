"""Which expressions a pipeline may have: checked on the plan that Spark's own analyser makes of them.

A replay after a crash must give the same row. So an expression sees one row and nothing else: no other rows, no clock,
no chance, no session. Types are checked, never cast silently.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)
from typing_extensions import override

from sinkpipeline.core.errors import Reason, SinkPipelineError
from sinkpipeline.spark.columns import TAKEN
from sinkpipeline.spark.java import java_class
from sinkpipeline.spark.said import java_says, quiet, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

SOURCE_STRUCT = "kafka"
"""The struct column that holds the source record; no field of a schema may have its name."""

SOURCE_COLUMNS = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")

_SOURCE_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
SCHEMA_PATH = "spec.decode.schema"


@dataclass(frozen=True)
class Problem:
    """What is wrong at a path of the manifest, and what to write instead."""

    path: str
    fact: str
    remedy: str
    whatever_columns: bool = False
    """Whether it is wrong with any columns."""

    @override
    def __str__(self) -> str:
        return f"{self.path}: {self.fact}; {self.remedy}"


class ExpressionsInvalid(SinkPipelineError):
    """One error for all problems; there is at least one."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = tuple(problems)
        facts = "; ".join(f"{each.path}: {each.fact}" for each in problems)
        super().__init__(Reason.EXPRESSION_INVALID, facts, "; ".join(dict.fromkeys(each.remedy for each in problems)))

    @override
    def __reduce__(self) -> tuple[type[ExpressionsInvalid], tuple[list[Problem]]]:
        # An exception is rebuilt from its `args`, which are the base class's.
        return type(self), (list(self.problems),)


def source_frame(spark: SparkSession) -> DataFrame:
    """An empty batch DataFrame of the shape of Spark's Kafka source."""
    return spark.createDataFrame([], _SOURCE_SCHEMA)


def parse_schema(spark: SparkSession, ddl: str) -> StructType:
    """The columns of a DDL text, NOT NULL included. Spark's ParseException if it isn't one.

    PySpark's own function also takes other notations, by trying one after the other; a manifest has one.
    """
    columns: dict[str, Any] = json.loads(java_class(spark, "org.apache.spark.sql.types.StructType").fromDDL(ddl).json())
    return StructType.fromJson(columns)


def check_schema(spark: SparkSession, ddl: str, decode_format: str = "json") -> tuple[StructType, list[Problem]]:
    """The schema, as of a format's records, and what is wrong with it."""
    with quiet():
        try:
            schema = parse_schema(spark, ddl)
            if decode_format == "csv" and (nested := _nested(schema)):
                remedy = "give it a type that one field of a line can have, such as STRING"
                return schema, [Problem(SCHEMA_PATH, f"column {nested} is nested, and a line is not", remedy)]
            text = F.col("value").cast("string")
            source_frame(spark).select(F.from_csv(text, ddl) if decode_format == "csv" else F.from_json(text, schema))
        except PySparkException as error:
            return StructType(), [schema_problem(error)]
    return schema, list(column_problems(schema))


def schema_problem(error: PySparkException) -> Problem:
    """What Spark says of a schema that it can't read."""
    remedy = "write columns as in CREATE TABLE: id BIGINT NOT NULL, country STRING"
    return Problem(SCHEMA_PATH, sentence(error), remedy)


def _nested(schema: StructType) -> str | None:
    inner = ArrayType | MapType | StructType
    return next((each.name for each in schema.fields if isinstance(each.dataType, inner)), None)


def column_problems(schema: StructType) -> Iterator[Problem]:
    """What is wrong with the columns of a decoded record."""
    if not schema.fields:
        yield Problem(SCHEMA_PATH, "has no columns", "name at least one column, or use format: raw")
    seen: dict[str, str] = {}
    for each in schema.fields:
        if each.name.lower() == SOURCE_STRUCT:
            fact = f"a column can't be called {each.name}: {SOURCE_STRUCT} is the source record"
            yield Problem(SCHEMA_PATH, fact, "leave the column out and read it from CAST(kafka.value AS STRING)")
        elif each.name.lower() in seen:
            fact = f"columns {seen[each.name.lower()]} and {each.name} have the same name"
            yield Problem(SCHEMA_PATH, fact, "keep one of them: names of columns are not case sensitive")
        seen[each.name.lower()] = each.name
        if set(each.metadata) - {"comment"}:
            yield Problem(SCHEMA_PATH, f"column {each.name} has a default or is generated", "give a name and a type")


def check_expressions(visible: DataFrame, expressions: Iterable[tuple[str, str, str]]) -> list[Problem]:
    """What is wrong with each (path, SQL text, what it is for) on these columns."""
    with quiet():
        return [problem for each in expressions for problem in _check(visible, *each)]


def check_names(visible: DataFrame, names: Iterable[tuple[str, str]]) -> list[Problem]:
    """What is wrong with columns that are added to these, as (path, name)."""
    taken = {each.lower(): each for each in visible.columns}
    found = []
    for path, name in names:
        if name.lower() in taken:
            fact = f"there is a column {taken[name.lower()]} already"
            found.append(Problem(path, fact, "give another name: names of columns are not case sensitive"))
        taken[name.lower()] = name
    return found


def _check(visible: DataFrame, path: str, text: str, purpose: str) -> Iterator[Problem]:
    try:
        if refusal := _unparsed_refusal(visible, text):
            yield Problem(path, *refusal, whatever_columns=True)
            return
        selected = visible.select(F.expr(text))
    except AnalysisException as error:
        yield _misunderstood(visible, path, error)
        return
    except Py4JJavaError as error:
        # A catalog that `spark.conf` names, and that nobody has or that fails.
        yield Problem(path, java_says(error), "correct what spec.spark.conf says of it, or give its jar to --jars")
        return
    if refusal := _refusal(visible, selected):
        yield Problem(path, *refusal)
        return
    kind, rule = selected.schema[0].dataType, _TYPES[purpose]
    if not rule.accepts(kind):
        yield Problem(path, f"must be {rule.wanted}, is {_type_name(kind)}", rule.remedy)


# What is refused for what it does. Names are those of Spark's classes: its analyser is the one who knows.

_REPEATABLE = "a replay after a crash must give the same row"
_ROW_BY_ROW = "write an expression of one row: the transform is row by row"
_CLOCK_REMEDY = f"use kafka.timestamp: {_REPEATABLE}"
_STARS = {"UnresolvedStar", "UnresolvedStarExcept", "UnresolvedStarExceptOrReplace", "UnresolvedRegex"}
_CLOCKS = {"CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp", "CurrentTime", "CurrentBatchTimestamp"}
_SESSION = {"CurrentUser", "CurrentDatabase", "CurrentCatalog", "CurrentTimeZone"}
_TIMES = {"date", "timestamp", "timestamp_ntz"}
_SPECIAL_TIME = r"(?:(?:now|today|tomorrow|yesterday)\b|T\d|\d{1,2}:)"
"""A time without a date is one of today, too."""
_TYPED_SPECIAL_TIME = re.compile(
    rf"\b(?:date|timestamp(?:_ntz|_ltz)?)\s*r?(['\"])\s*{_SPECIAL_TIME}[^'\"]*\1", re.IGNORECASE
)

_Refusal = tuple[str, str]


def _unparsed_refusal(visible: DataFrame, text: str) -> _Refusal | None:
    """What must be seen before the analyser replaces it: stars, and literals that read the clock while parsed."""
    jvm_session: Any = visible.sparkSession._jsparkSession  # noqa: SLF001 - PySpark offers no other way
    for node in _nodes(jvm_session.sessionState().sqlParser().parseExpression(text)):
        if _class(node) in _STARS:
            return "stars are refused", "name the columns"
    if _TYPED_SPECIAL_TIME.search(text):
        return "reads the clock (a literal such as TIMESTAMP 'now')", _CLOCK_REMEDY
    return None


def _refusal(visible: DataFrame, selected: DataFrame) -> _Refusal | None:
    plan, source = _analysed(selected), _analysed(visible)
    kind = _class(plan)
    if kind == "Aggregate":
        return "aggregate functions are refused", _ROW_BY_ROW
    if kind != "Project" or plan.projectList().size() != 1 or not plan.child().equals(source):
        below = {_class(each) for each in _nodes(plan)}
        if "Generate" in below:
            return "generators such as explode are refused", "for a row of each element give transform.explode an array"
        if "Window" in below:
            return "window functions are refused", _ROW_BY_ROW
        return (
            f"is more than an expression of one row (it needs {', '.join(sorted(below - _plain(source)))})",
            _ROW_BY_ROW,
        )
    for node in _nodes(plan.projectList().head()):
        if refusal := _node_refusal(visible, node):
            return refusal
    return None


def _plain(source: Any) -> set[str]:
    return {"Project", *(_class(each) for each in _nodes(source))}


def _node_refusal(visible: DataFrame, node: Any) -> _Refusal | None:
    gateway: Any = visible.sparkSession.sparkContext._gateway  # noqa: SLF001 - PySpark offers no other way
    name = _class(node)
    if is_instance_of(gateway, node, "org.apache.spark.sql.catalyst.expressions.PlanExpression"):
        return "subqueries are refused", _ROW_BY_ROW
    if name.startswith("PythonUD"):
        return "Python functions are refused", "use Spark's own functions"
    if name in _CLOCKS or _reads_clock(node):
        return "reads the clock", _CLOCK_REMEDY
    if name in _SESSION:
        return f"depends on the session ({node.prettyName()})", f"write the value: {_REPEATABLE}"
    is_random = not node.deterministic() and all(child.deterministic() for child in _children(node))
    if is_random or (name == "AesEncrypt" and _draws_vector(node)):
        # A function of a catalog is called by an expression that is the same for all of them.
        called = node.name() if name == "ApplyFunctionExpression" else node.prettyName()
        return f"is not deterministic ({called.lower()})", f"leave it out: {_REPEATABLE}"
    return None


def _draws_vector(node: Any) -> bool:
    """Whether each row is encrypted with a random vector: Spark calls it deterministic."""
    _, _, mode, _, vector, _ = _children(node)
    if not vector.foldable() or (mode.foldable() and _constant(mode).upper() == "ECB"):
        return False
    try:
        return not vector.eval(None)
    except (Py4JError, PySparkException):
        return False  # a function that the optimiser would replace first: one is given


def _reads_clock(node: Any) -> bool:
    """Whether a text such as 'now' becomes a time here: Spark replaces it by the clock where it is a constant."""
    if node.dataType().typeName() not in _TIMES:
        return False
    texts = (child for child in _children(node) if child.dataType().typeName() == "string" and child.foldable())
    return any(re.match(rf"\s*{_SPECIAL_TIME}", _constant(text), re.IGNORECASE) for text in texts)


def _constant(node: Any) -> str:
    try:
        return str(node.eval(None))
    except (Py4JError, PySparkException):
        # A function that the optimiser would replace first. Its own constants show what it can become.
        return next((str(each.eval(None)) for each in _nodes(node) if _class(each) == "Literal"), "")


def _analysed(df: DataFrame) -> Any:
    frame: Any = df._jdf  # noqa: SLF001 - PySpark offers no other way
    return frame.queryExecution().analyzed()


def _class(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(index) for index in range(children.size())]


def _nodes(node: Any) -> Iterator[Any]:
    yield node
    for child in _children(node):
        yield from _nodes(child)


# Types.


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType | BinaryType)


def _is_headers(kind: DataType) -> bool:
    match kind:
        case MapType():
            return isinstance(kind.keyType, StringType) and _is_text(kind.valueType)
        case ArrayType(elementType=StructType() as entry) if [each.lower() for each in entry.names] == ["key", "value"]:
            return isinstance(entry[0].dataType, StringType) and _is_text(entry[1].dataType)
        case _:
            return False


def header_entries(headers: Column, kind: DataType) -> Column:
    """ARRAY<STRUCT<key: STRING, value: BINARY>> of a column of an accepted type; null stays null.

    A null entry is no header: so that CASE can decide about one inside an array.
    """
    entries = F.map_entries(headers) if isinstance(kind, MapType) else F.filter(headers, lambda each: each.isNotNull())
    return F.transform(
        entries,
        lambda each: F.struct(
            each.getField("key").cast("string").alias("key"), each.getField("value").cast("binary").alias("value")
        ),
    )


@dataclass(frozen=True)
class _Rule:
    accepts: Callable[[DataType], bool]
    wanted: str
    remedy: str


def _is(*kinds: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


_TEXT = _Rule(
    _is_text, "STRING or BINARY", "CAST(... AS STRING); for a struct to_json(...), or kafka.encode in each of its sinks"
)
_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_TYPES = {
    "where": _Rule(_is(BooleanType), "BOOLEAN", "write a comparison, or CAST(... AS BOOLEAN)"),
    "key": _TEXT,
    "value": _TEXT,
    "subject": _Rule(_is(StringType), "STRING", "CAST(... AS STRING)"),
    "encoded": _Rule(_is(StructType), "a STRUCT, as the sink encodes it", "struct(...), or named_struct('name', ...)"),
    "headers": _Rule(
        _is_headers,
        "MAP<STRING, STRING|BINARY> or ARRAY<STRUCT<key: STRING, value: STRING|BINARY>>",
        "map('name', CAST(... AS STRING)), or array(named_struct('key', ..., 'value', ...))",
    ),
    "timestamp": _Rule(
        _is(TimestampType, LongType),
        "TIMESTAMP or BIGINT (milliseconds)",
        "CAST(... AS TIMESTAMP), or CAST(... AS BIGINT) for milliseconds",
    ),
    "partition": _Rule(_is(IntegerType, ShortType, ByteType), "INT", "CAST(... AS INT)"),
    "topic": _Rule(_is(StringType), "STRING", "CAST(... AS STRING)"),
    "deleteWhen": _Rule(_is(BooleanType), "BOOLEAN", "write a comparison, or CAST(... AS BOOLEAN)"),
    "orderBy": _Rule(
        _is(TimestampType, *_INTEGERS), "BIGINT or TIMESTAMP", "CAST(... AS BIGINT), or CAST(... AS TIMESTAMP)"
    ),
    **{f"column{of}": _Rule(*rule) for of, rule in TAKEN.items()},
    "equals of STRING": _Rule(_is(StringType), "STRING, as the key is", "CAST(... AS STRING)"),
    "equals of DATE": _Rule(_is(DateType), "DATE, as the key is", "CAST(... AS DATE)"),
    "equals of integers": _Rule(_is(*_INTEGERS), "an integer, as the key is", "CAST(... AS BIGINT)"),
    "array": _Rule(
        _is(ArrayType), "ARRAY<...>", "write a column that is one, or split(...) or from_json(...) of a text"
    ),
}


def _type_name(kind: DataType) -> str:
    name = kind.simpleString()
    return name.upper() if name.isidentifier() else name


# What Spark says.


def _misunderstood(visible: DataFrame, path: str, error: PySparkException) -> Problem:
    condition = error.getCondition() or ""
    if condition.startswith("UNRESOLVED_COLUMN"):
        name = (error.getMessageParameters() or {}).get("objectName", "")
        names = ", ".join(visible.columns)
        return Problem(path, f"there is no column {name}; available: {names}", "use one of the available columns")
    remedy = "write one Spark SQL expression on the available columns"
    if condition.startswith("UNRESOLVED_ROUTINE"):
        remedy = "call a function of Spark's, or one that spec.spark.functions names"
    return Problem(path, sentence(error), remedy, whatever_columns=isinstance(error, ParseException))
