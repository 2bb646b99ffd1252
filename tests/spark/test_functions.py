"""Functions of jars in expressions: those of the manifest, and those of a catalog that the configuration names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sinkpipeline.core.manifest import JavaFunction
from sinkpipeline.core.rowplan import RowPlan, RowSelect
from sinkpipeline.spark.analysis import analyse
from sinkpipeline.spark.expressions import ExpressionsInvalid, Problem
from sinkpipeline.spark.functions import register_functions
from sinkpipeline.spark.transform import output_rows
from support.functions_jar import BROKEN, CATALOG, HARD, MASK, functions_jar
from support.spark_source import SOURCE

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def with_jar(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The Spark of all tests, with one more jar, which nobody else's expressions name."""
    jar = functions_jar(tmp_path_factory.mktemp("functions"))
    spark.sql(f"ADD JAR '{jar.as_uri()}'")
    return spark


@pytest.fixture
def own(with_jar: SparkSession) -> Iterator[SparkSession]:
    """A session of its own: functions stay where they are registered. Its thread has classes as with --jars."""
    jvm: Any = with_jar._jvm
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(with_jar._jsparkSession.sharedState().jarClassLoader())
    yield with_jar.newSession()
    thread.setContextClassLoader(before)


def function(name: str = "mask_email", class_name: str = MASK, returns: str | None = None) -> JavaFunction:
    return JavaFunction.model_validate({"name": name, "className": class_name, "returns": returns})


def problems(spark: SparkSession, *functions: JavaFunction) -> tuple[Problem, ...]:
    with pytest.raises(ExpressionsInvalid) as caught:
        register_functions(spark, functions)
    return caught.value.problems


def delivered(spark: SparkSession, plan: RowPlan, *values: str | None) -> list[tuple[str | None, str | None]]:
    """The value and the error of each row."""
    records = [
        (None, None if each is None else each.encode(), "t", 0, at, None, 0, None) for at, each in enumerate(values)
    ]
    analyse(spark, plan)
    rows = output_rows(spark.createDataFrame(records, SOURCE).coalesce(1), plan).orderBy("offset").collect()
    return [(None if row.value is None else bytes(row.value).decode(), row.error) for row in rows]


def text(value: str, where: str | None = None) -> RowPlan:
    return RowPlan(decode_format="raw", where=where, select=RowSelect(value=value))


@pytest.mark.parametrize("returns", [None, "STRING"])
@pytest.mark.thorough("the other way to name its type", after=1)
def test_a_function_that_fails_fails_for_its_record_alone(own: SparkSession, returns: str | None) -> None:
    register_functions(own, [function(returns=returns)])
    plan = text("Mask_Email(CAST(value AS STRING))", where="mask_email(CAST(value AS STRING)) != '***@b'")
    found = delivered(own, plan, "a@b", "ann@example.org", "nobody")
    assert found[0] == ("***@example.org", None)
    value, error = found[1]
    assert value == "nobody"
    assert error is not None
    assert error.startswith("EvaluationFailed: transform.where ")
    assert "function" in error
    assert "address" not in error, "what an exception says of a record is nobody else's"
    assert len(found) == 2


def test_a_value_of_another_type_than_was_said_fails_for_each_record(own: SparkSession) -> None:
    register_functions(own, [function(returns="BIGINT")])
    [(value, error)] = delivered(own, text("CAST(mask_email(CAST(value AS STRING)) AS STRING)"), "a@b")
    assert (value, (error or "").partition(":")[0]) == ("a@b", "EvaluationFailed")


def test_what_can_be_no_function_is_told_all_at_once(own: SparkSession) -> None:
    found = problems(
        own,
        function("Lower"),
        function("missing", "com.example.Missing"),
        function("none", "java.lang.String"),
        function("broken", BROKEN),
        function("typed", returns="TEXTS"),
        function("also", "org.apache.spark.sql.expressions.Aggregator"),
    )
    assert [each.path.removeprefix("spec.spark.functions") for each in found] == [
        *("[0].name", "[1].className", "[2].className", "[3].className", "[4].returns", "[5].className"),
    ]
    assert "Spark has a function Lower already" in found[0].fact
    assert "com.example.Missing" in found[1].fact
    assert "--jars" in found[1].remedy
    assert all("\n" not in each.fact for each in found)


def test_a_function_with_other_arguments_is_refused(own: SparkSession) -> None:
    register_functions(own, [function()])
    with pytest.raises(ExpressionsInvalid) as refused:
        analyse(own, text("mask_email()"))
    assert refused.value.problems[0].path == "spec.transform.select.value"


@pytest.mark.thorough("another kind of function")
def test_functions_of_a_catalog_and_those_that_say_they_are_not_deterministic(own: SparkSession) -> None:
    own.conf.set("spark.sql.catalog.udf", CATALOG)
    assert delivered(own, text("CAST(udf.twice(length(value)) AS STRING)"), "abc") == [("6", None)]
    with pytest.raises(ExpressionsInvalid) as refused:
        analyse(own, text("CAST(udf.dice(6) AS STRING)"))
    assert "is not deterministic (dice)" in refused.value.problems[0].fact


def test_an_error_of_java_is_its_record_s_as_an_exception_is(own: SparkSession) -> None:
    """Such as a class that a function needs and that is in no jar, or a text that is nested too deeply for it."""
    register_functions(own, [function("hard", HARD)])
    found = delivered(own, text("hard(CAST(value AS STRING))"), "fine", "unlinked", "fine", "deep", "fine")
    assert [(value, (error or "").partition(":")[0]) for value, error in found] == [
        *(("fine", ""), ("unlinked", "EvaluationFailed"), ("fine", ""), ("deep", "EvaluationFailed"), ("fine", "")),
    ]


def test_a_function_that_is_not_what_it_promises_loses_nothing(own: SparkSession) -> None:
    """It fails for each seventh call, whatever it is asked. A row has a value, or an error."""
    register_functions(own, [function("hard", HARD)])
    values = [str(each) for each in range(40)]
    plan = RowPlan(
        decode_format="raw",
        where="hard(CAST(value AS STRING)) IS NOT NULL",
        select=RowSelect(key="hard(CAST(value AS STRING))", value="hard(CAST(value AS STRING))"),
    )
    found = delivered(own, plan, *values)
    assert [value for value, _ in found] == values
    assert {error is None for _, error in found} == {True, False}


def test_a_name_that_is_no_call_in_sql_is_told_where_it_stands(own: SparkSession) -> None:
    [found] = problems(own, function("Identifier"))
    assert (found.path, found.remedy) == ("spec.spark.functions[0].name", "give it another name")
    assert "means something else in SQL" in found.fact


def test_a_catalog_that_nobody_has_is_told_with_the_expression(own: SparkSession) -> None:
    own.conf.set("spark.sql.catalog.absent", "com.example.Absent")
    with pytest.raises(ExpressionsInvalid) as refused:
        analyse(own, text("CAST(absent.twice(3) AS STRING)"))
    [found] = refused.value.problems
    assert found.path == "spec.transform.select.value"
    assert "com.example.Absent" in found.fact
    assert "--jars" in found.remedy
    own.conf.set("spark.sql.defaultCatalog", "absent")
    [found] = problems(own, function(), function("other"))
    assert (found.path, "com.example.Absent" in found.fact) == ("spec.spark.conf", True)


def test_a_function_that_nobody_has_is_told_where_it_would_come_from(own: SparkSession) -> None:
    with pytest.raises(ExpressionsInvalid) as refused:
        analyse(own, text("nobody(CAST(value AS STRING))"))
    assert "spec.spark.functions" in refused.value.problems[0].remedy
