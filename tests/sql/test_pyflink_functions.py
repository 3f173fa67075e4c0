"""The objects of PyFlink itself, where it is installed: it is no dependency of headrace, and needs no Java for this."""

from __future__ import annotations

from typing import Any

import headrace as hr
import polars as pl
import pytest

udf_module = pytest.importorskip("pyflink.table.udf", reason="PyFlink is not installed")


def aggregates() -> dict[str, Any]:
    from pyflink.common import Row
    from pyflink.table import DataTypes
    from pyflink.table.data_view import ListView
    from pyflink.table.udf import AggregateFunction, TableAggregateFunction, udaf, udtaf

    class Mean(AggregateFunction):  # type: ignore[misc]
        def create_accumulator(self) -> Any:
            return Row(0, 0)

        def accumulate(self, state: Any, value: Any, weight: Any) -> None:
            state[0] += value * weight
            state[1] += weight

        def merge(self, state: Any, others: Any) -> None:
            for other in others:
                state[0] += other[0]
                state[1] += other[1]

        def get_value(self, state: Any) -> Any:
            return state[0] / state[1] if state[1] else None

        def get_result_type(self) -> Any:
            return "DOUBLE"

        def get_accumulator_type(self) -> Any:
            return "ROW<f0 BIGINT, f1 BIGINT>"

    class Joined(AggregateFunction):  # type: ignore[misc]
        """Without merge, and with a view as its state."""

        def create_accumulator(self) -> Any:
            return Row(ListView())

        def accumulate(self, state: Any, text: Any) -> None:
            state[0].add(text)

        def get_value(self, state: Any) -> Any:
            return "+".join(sorted(state[0].get()))

        def get_result_type(self) -> Any:
            return DataTypes.STRING()

        def get_accumulator_type(self) -> Any:
            return DataTypes.ROW([DataTypes.FIELD("f0", DataTypes.LIST_VIEW(DataTypes.STRING()))])

    class Top2(TableAggregateFunction):  # type: ignore[misc]
        def create_accumulator(self) -> Any:
            return [None, None]

        def accumulate(self, state: Any, value: Any) -> None:
            state[:] = sorted([*(each for each in state if each is not None), value], reverse=True)[:2]

        def emit_value(self, state: Any) -> Any:
            for each in state:
                if each is not None:
                    yield Row(each)

        def get_accumulator_type(self) -> Any:
            return "ARRAY<BIGINT>"

        def get_result_type(self) -> Any:
            return "ROW<v BIGINT>"

    return {"mean": udaf(Mean()), "joined": udaf(Joined()), "top2": udtaf(Top2())}


def functions() -> dict[str, Any]:
    from pyflink.common import Row
    from pyflink.table import DataTypes
    from pyflink.table.udf import ScalarFunction, TableFunction, udaf, udf, udtf

    class Hash(ScalarFunction):  # type: ignore[misc]
        def open(self, context: Any) -> None:
            self.factor = int(context.get_job_parameter("HASH_FACTOR_OF_TESTS", "12"))

        def eval(self, value: Any) -> Any:
            return value * self.factor

    class Split(TableFunction):  # type: ignore[misc]
        def eval(self, text: Any) -> Any:
            for each in text.split():
                yield Row(each, len(each))

    @udf(result_type=DataTypes.BIGINT())
    def add(i: Any, j: Any) -> Any:
        return i + j

    @udf(
        result_type=DataTypes.ROW([DataTypes.FIELD("a", DataTypes.BIGINT()), DataTypes.FIELD("b", DataTypes.STRING())])
    )
    def pair(i: Any) -> Any:
        return Row(i, str(i))

    @udf(result_type="BIGINT", func_type="pandas")
    def doubled(series: Any) -> Any:
        return series * 2

    @udtf(result_types=["STRING", "BIGINT"])
    def lengths(text: Any) -> Any:
        yield text, len(text)

    @udaf(result_type="DOUBLE", func_type="pandas")
    def middle(series: Any) -> Any:
        return series.median()

    return {
        "add1": add, "pair": pair, "doubled": doubled, "lengths": lengths, "middle": middle, "hashed": udf(Hash(), result_type="BIGINT"),
        "split": udtf(Split(), result_types="ROW<word STRING, n BIGINT>"), **aggregates(),
    }  # fmt: skip


CASES = [
    ("SELECT add1(v, 1), hashed(v), pair(v).b FROM t", [(2, 12, "1"), (3, 24, "2"), (4, 36, "3")]),
    ("SELECT x.word, x.n FROM t, LATERAL TABLE(split(s)) AS x(word, n)", [("a", 1), ("bb", 2), ("c", 1), ("dd", 2)]),
    ("SELECT x.a, x.b FROM t, LATERAL TABLE(lengths(s)) AS x(a, b)", [("a bb", 4), ("c", 1), ("dd", 2)]),
    ("SELECT k, mean(v, v) FROM t GROUP BY k", [("x", 5 / 3), ("y", 3.0)]),
    ("SELECT k, joined(s) FROM t GROUP BY k", [("x", "a bb+c"), ("y", "dd")]),
    ("SELECT doubled(v) FROM t", [(2,), (4,), (6,)]),
    ("SELECT middle(v) FROM t", [(2.0,)]),
    (
        "SELECT q.k, x.v FROM (SELECT k, top2(v) AS l FROM t GROUP BY k) AS q, UNNEST(q.l) AS x(v)",
        [("x", 1), ("x", 2), ("y", 3)],
    ),
]


@pytest.mark.parametrize(("query", "wanted"), CASES)
@pytest.mark.parametrize("backend", ["light", pytest.param("spark", marks=pytest.mark.spark)])
def test_functions_of_pyflink(backend: str, query: str, wanted: list[tuple[Any, ...]]) -> None:
    hr.register("t", pl.DataFrame({"s": ["a bb", "c", "dd"], "v": [1, 2, 3], "k": ["x", "x", "y"]}))
    found = hr.sql(query, functions=functions()).collect(backend=backend, max_batch_records=2)
    assert sorted(found.rows(), key=repr) == wanted
