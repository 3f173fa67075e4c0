"""Converts Sigma rules, which pySigma has read and to which it has applied its pipelines, to SQL conditions of
headrace.

pySigma reads rules, modifiers and conditions. Values are compared as in headrace-rules, so rules of both ways match the
same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import yaml
from headrace_rules.sigma import id_of
from headrace_rules.sigma_fields import (
    column_of,
    compared,
    found_by_regex,
    in_network,
    joined,
    like_column,
    matches,
    number,
)
from headrace_rules.sigma_values import SigmaError, Text, Wildcard, surrounded
from sigma.conditions import (
    ConditionAND,
    ConditionFieldEqualsValueExpression,
    ConditionNOT,
    ConditionOR,
    ConditionValueExpression,
)
from sigma.conversion.base import Backend
from sigma.conversion.state import ConversionState
from sigma.exceptions import SigmaConversionError, SigmaFeatureNotSupportedByBackendError
from sigma.rule import SigmaRule
from sigma.types import (
    CompareOperators,
    SigmaBool,
    SigmaCasedString,
    SigmaCIDRExpression,
    SigmaCompareExpression,
    SigmaFieldReference,
    SigmaNumber,
    SigmaRegularExpression,
    SigmaString,
    SigmaTimestampPart,
    SpecialChars,
)

_OPERATORS = {
    CompareOperators.LT: "<", CompareOperators.LTE: "<=", CompareOperators.GT: ">", CompareOperators.GTE: ">=",
}  # fmt: skip


class HeadraceBackend(Backend):
    """Converts Sigma rules to conditions of headrace: ``HeadraceBackend(pipeline).convert(collection)``.

    Formats: ``default`` gives one condition for each rule, for ``where``; ``rules`` gives the text of a YAML file for
    the verb ``rules``. ``keywords``: the columns in which values without a field are searched. Fields are columns; a
    dot means a field of a column of structs. Correlations are not converted, because headrace-detection reads them.
    Parts that headrace cannot express raise a SigmaError.
    """

    name: ClassVar[str] = "headrace"
    identifier: ClassVar[str] = "headrace"
    formats: ClassVar[dict[str, str]] = {
        "default": "Conditions in the SQL of headrace",
        "rules": "A YAML file for the verb rules of headrace",
    }
    requires_pipeline: ClassVar[bool] = False

    def __init__(
        self,
        processing_pipeline: Any = None,
        collect_errors: bool = False,
        *,
        keywords: str | Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(processing_pipeline, collect_errors, **options)
        self._keywords = [column_of(name) for name in ([keywords] if isinstance(keywords, str) else keywords)]

    # ----------------------------------------------------------------------------------------------- conditions

    def convert_condition_or(self, cond: ConditionOR, state: ConversionState) -> str:
        return joined(self._tests(cond.args, state, together=True), "OR")

    def convert_condition_and(self, cond: ConditionAND, state: ConversionState) -> str:
        return joined(self._tests(cond.args, state, together=False), "AND")

    def convert_condition_not(self, cond: ConditionNOT, state: ConversionState) -> str:
        # A missing field (NULL) does not match, so its negation is true.
        return f"({self.convert_condition(cond.args[0], state)}) IS NOT TRUE"

    def convert_condition_as_in_expression(self, cond: ConditionOR | ConditionAND, state: ConversionState) -> str:
        raise NotImplementedError("texts of one field are put together by convert_condition_or")

    def _tests(self, parts: Sequence[Any], state: ConversionState, *, together: bool) -> list[str]:
        """Return the tests of parts. If any of several texts of one field may match, they become one test."""
        tests: list[str] = []
        texts: dict[tuple[str, bool], list[Text]] = {}
        for part in parts:
            if together and isinstance(part, ConditionFieldEqualsValueExpression) and type(part.value) is SigmaString:
                parsed = _text(part.value)
                digits = len(parsed) == 1 and isinstance(parsed[0], str) and parsed[0].isascii() and parsed[0].isdigit()
                texts.setdefault((part.field, digits), []).append(parsed)
            else:
                tests.append(self.convert_condition(part, state))
        return [*tests, *(matches(_column(name), group) for (name, _), group in texts.items())]

    # --------------------------------------------------------------------------------------- values of a field

    def convert_condition_field_eq_val_str(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return matches(_column(cond.field), [_text(_of(cond, SigmaString))])

    def convert_condition_field_eq_val_str_case_sensitive(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return matches(_column(cond.field), [_text(_of(cond, SigmaCasedString))], cased=True)

    def convert_condition_field_eq_val_num(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return matches(_column(cond.field), [[str(_of(cond, SigmaNumber).number)]])

    def convert_condition_field_eq_val_timestamp_part(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        value = _of(cond, SigmaTimestampPart)
        return f"{value.timestamp_part.name.lower()}({_column(cond.field)}) = {number(value.number)}"

    def convert_condition_field_eq_val_bool(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return matches(_column(cond.field), [["true" if _of(cond, SigmaBool).boolean else "false"]])

    def convert_condition_field_eq_val_re(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return _regex(_column(cond.field), _of(cond, SigmaRegularExpression))

    def convert_condition_field_eq_val_cidr(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return in_network(_column(cond.field), _of(cond, SigmaCIDRExpression).cidr)

    def convert_condition_field_compare_op_val(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        value = _of(cond, SigmaCompareExpression)
        if value.op is CompareOperators.NEQ:
            return f"({matches(_column(cond.field), [[str(value.number.number)]])}) IS NOT TRUE"
        return compared(_column(cond.field), _OPERATORS[value.op], value.number.number)

    def convert_condition_field_eq_field(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        value = _of(cond, SigmaFieldReference)
        place = {(True, True): "contains", (True, False): "startswith", (False, True): "endswith"}.get(
            (value.starts_with, value.ends_with), ""
        )
        return like_column(_column(cond.field), _column(value.field), place, cased=False)

    def convert_condition_field_eq_val_null(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return f"{_column(cond.field)} IS NULL"

    def convert_condition_field_exists(self, cond: ConditionFieldEqualsValueExpression, state: ConversionState) -> str:
        return f"{_column(cond.field)} IS NOT NULL"

    def convert_condition_field_not_exists(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        return f"{_column(cond.field)} IS NULL"

    def convert_condition_field_eq_query_expr(
        self, cond: ConditionFieldEqualsValueExpression, state: ConversionState
    ) -> str:
        raise SigmaFeatureNotSupportedByBackendError(
            "expressions of a query in a pipeline are not supported by headrace"
        )

    # ------------------------------------------------------------------------------------ values without a field

    def convert_condition_val_str(self, cond: ConditionValueExpression, state: ConversionState) -> str:
        assert isinstance(cond.value, SigmaString)
        text = surrounded(_text(cond.value), before=True, after=True)
        return self._in_keywords([matches(column, [text]) for column in self._keywords])

    def convert_condition_val_num(self, cond: ConditionValueExpression, state: ConversionState) -> str:
        assert isinstance(cond.value, SigmaNumber)
        text = surrounded([str(cond.value.number)], before=True, after=True)
        return self._in_keywords([matches(column, [text]) for column in self._keywords])

    def convert_condition_val_re(self, cond: ConditionValueExpression, state: ConversionState) -> str:
        assert isinstance(cond.value, SigmaRegularExpression)
        value = cond.value
        return self._in_keywords([_regex(column, value) for column in self._keywords])

    def convert_condition_query_expr(self, cond: ConditionValueExpression, state: ConversionState) -> str:
        raise SigmaFeatureNotSupportedByBackendError(
            "expressions of a query in a pipeline are not supported by headrace"
        )

    @staticmethod
    def _in_keywords(tests: Sequence[str]) -> str:
        if not tests:
            raise SigmaFeatureNotSupportedByBackendError(
                "keywords are texts without a field: the backend's option keywords must name the columns to search"
            )
        return joined(tests, "OR")

    # --------------------------------------------------------------------------------------------- correlations

    def convert_correlation_event_count_rule(self, *arguments: Any, **options: Any) -> list[Any]:
        raise SigmaFeatureNotSupportedByBackendError(
            "correlations are not converted: the verb correlate of headrace-detection reads them as they are"
        )

    convert_correlation_value_count_rule = convert_correlation_event_count_rule
    convert_correlation_temporal_rule = convert_correlation_event_count_rule
    convert_correlation_temporal_ordered_rule = convert_correlation_event_count_rule
    convert_correlation_extended_temporal_rule = convert_correlation_event_count_rule
    convert_correlation_extended_temporal_ordered_rule = convert_correlation_event_count_rule
    convert_correlation_value_sum_rule = convert_correlation_event_count_rule
    convert_correlation_value_avg_rule = convert_correlation_event_count_rule
    convert_correlation_value_percentile_rule = convert_correlation_event_count_rule
    convert_correlation_value_median_rule = convert_correlation_event_count_rule

    # -------------------------------------------------------------------------------------------------- formats

    def finalize_query_rules(self, rule: SigmaRule, query: Any, index: int, state: ConversionState) -> dict[str, Any]:
        """Return a rule as a mapping. If a rule has several conditions, the ids of all but the first end with a
        number.
        """
        name = id_of({"id": str(rule.id) if rule.id else None, "name": rule.name, "title": rule.title})
        if not name:
            raise SigmaConversionError(rule, rule.source, "a rule of headrace needs an id, a name or a title")
        made = {"id": f"{name}-{index + 1}" if index else name, "expression": query}
        if rule.level is not None:
            made["severity"] = rule.level.name.lower()
        if rule.tags:
            made["labels"] = [f"{tag.namespace}.{tag.name}" for tag in rule.tags]
        return {**made, "description": rule.title}

    def finalize_output_rules(self, queries: list[Any]) -> str:
        """Return the text of the file."""
        return yaml.safe_dump(queries, sort_keys=False, allow_unicode=True)


def _column(name: str) -> str:
    try:
        return column_of(name)
    except SigmaError as error:
        raise SigmaFeatureNotSupportedByBackendError(str(error)) from error


def _of(cond: ConditionFieldEqualsValueExpression, kind: type[Any]) -> Any:
    assert isinstance(cond.value, kind)
    return cond.value


def _text(value: SigmaString) -> Text:
    parts: Text = []
    for part in value.s:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, SpecialChars):
            parts.append(Wildcard.ANY if part is SpecialChars.WILDCARD_MULTI else Wildcard.ONE)
        else:
            raise SigmaFeatureNotSupportedByBackendError(f"the placeholder %{part.name}% has no values")
    return parts or [""]


def _regex(column: str, value: SigmaRegularExpression) -> str:
    flags = [value.sigma_to_re_flag[flag] for flag in value.flags]
    # ``str(…)`` cannot be used, because it would escape characters that look like wildcards.
    return found_by_regex(column, value.regexp.original, flags)
