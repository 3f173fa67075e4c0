"""The sqlglot dialects ``flink`` and ``blink``: the syntax of texts with statements.

They are registered by entry point, so ``sqlglot.parse(text, read="flink")`` works wherever this package is installed.
Functions keep the names that the text has (``exp.Anonymous``): which exist is decided by the table of functions, not here.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, generator
from sqlglot import parser as sqlglot_parser
from sqlglot import tokens as sqlglot_tokens
from sqlglot.dialects.dialect import Dialect

from headrace_sql.reading import nodes
from headrace_sql.reading.ddl_parser import DefinitionParser
from headrace_sql.reading.generating import TRANSFORMS

_T: Any = sqlglot_tokens.TokenType  # type: ignore[attr-defined]
_BASE = sqlglot_parser.Parser
_BASE_FUNCTION_PARSERS = _BASE.FUNCTION_PARSERS
#: Words that are keywords of other dialects and names in ours.
_PLAIN_WORDS = ("COMMENT", "CURRENT_USER", "CURRENT_ROLE", "SESSION_USER", "KILL", "CACHE", "COPY", "LOAD", "SESSION")
_KEPT_KEYWORDS = {
    word: token
    for word, token in sqlglot_tokens.Tokenizer.KEYWORDS.items()
    if word not in _PLAIN_WORDS and token not in sqlglot_tokens.Tokenizer.COMMANDS
}


def _rounding(kind: type[exp.Expr]) -> Any:
    """Return a parser of FLOOR(x) and FLOOR(t TO unit)."""

    def parse(parser: Any) -> exp.Expr:
        this = parser._parse_disjunction()
        unit = parser._parse_var(any_token=True) if parser._match_text_seq("TO") else None
        if unit is None and not parser._match(_T.R_PAREN, advance=False):
            parser.raise_error("expected )")
        return parser.expression(kind(this=this, to=unit))  # type: ignore[no-any-return]

    return parse


def _json_query(parser: Any) -> exp.Expr:
    this = parser._parse_disjunction()
    parser._match(_T.COMMA)
    path = parser._parse_disjunction()
    wrapper = None
    for text in ("WITHOUT ARRAY WRAPPER", "WITHOUT WRAPPER", "WITH CONDITIONAL ARRAY WRAPPER", "WITH CONDITIONAL WRAPPER",
                 "WITH UNCONDITIONAL ARRAY WRAPPER", "WITH UNCONDITIONAL WRAPPER", "WITH ARRAY WRAPPER", "WITH WRAPPER"):  # fmt: skip
        if parser._match_text_seq(*text.split()):
            wrapper = text
            break
    arguments = [this, path] + ([exp.Literal.string(wrapper)] if wrapper else [])
    return parser.expression(exp.Anonymous(this="JSON_QUERY", expressions=arguments))  # type: ignore[no-any-return]


def _json_exists(parser: Any) -> exp.Expr:
    this = parser._parse_disjunction()
    parser._match(_T.COMMA)
    path = parser._parse_disjunction()
    arguments = [this, path]
    for word in ("TRUE", "FALSE", "UNKNOWN", "ERROR"):
        if parser._match_text_seq(word, "ON", "ERROR"):
            arguments.append(exp.Literal.string(word))
            break
    return parser.expression(exp.Anonymous(this="JSON_EXISTS", expressions=arguments))  # type: ignore[no-any-return]


def _json_pairs(name: str) -> Any:
    """Return a parser of JSON_OBJECT(KEY 'a' VALUE b, 'c' VALUE d, … NULL ON NULL), and of JSON_OBJECTAGG with one pair."""

    def parse(parser: Any) -> exp.Expr:
        arguments: list[Any] = []
        while not parser._match(_T.R_PAREN, advance=False) and not _at_nulls(parser):
            parser._match_text_seq("KEY")
            arguments.append(parser._parse_disjunction())
            if not (parser._match_text_seq("VALUE") or parser._match(_T.COLON) or parser._match(_T.COMMA)):
                parser.raise_error("expected VALUE")
            arguments.append(parser._parse_disjunction())
            if not parser._match(_T.COMMA):
                break
        return _json_call(parser, name, arguments, "NULL")

    return parse


def _json_values(name: str) -> Any:
    """Return a parser of JSON_ARRAY(a, b, … ABSENT ON NULL), and of JSON_ARRAYAGG with one value."""

    def parse(parser: Any) -> exp.Expr:
        at_end = parser._match(_T.R_PAREN, advance=False) or _at_nulls(parser)
        return _json_call(parser, name, [] if at_end else parser._parse_csv(parser._parse_disjunction), "ABSENT")

    return parse


def _at_nulls(parser: Any) -> bool:
    """Return whether NULL ON NULL or ABSENT ON NULL stands here, not a value."""
    index = parser._index
    found = bool(parser._match_text_seq("NULL", "ON", "NULL") or parser._match_text_seq("ABSENT", "ON", "NULL"))
    parser._retreat(index)
    return found


def _json_call(parser: Any, name: str, arguments: list[Any], nulls: str) -> exp.Expr:
    for word in ("NULL", "ABSENT"):
        if parser._match_text_seq(word, "ON", "NULL"):
            nulls = word
    return parser.expression(nodes.JsonCall(this=name, expressions=arguments, nulls=nulls))  # type: ignore[no-any-return]


class Flink(Dialect):
    """Flink SQL: its statements, and the queries of them."""

    INDEX_OFFSET = 0
    SUPPORTS_USER_DEFINED_TYPES = False

    class Tokenizer(sqlglot_tokens.Tokenizer):
        QUOTES: ClassVar[list[Any]] = ["'"]
        IDENTIFIERS: ClassVar[list[Any]] = ["`"]
        STRING_ESCAPES: ClassVar[list[str]] = ["'"]
        COMMENTS: ClassVar[list[Any]] = ["--", "//", ("/*", "*/")]
        HEX_STRINGS: ClassVar[list[Any]] = [("X'", "'"), ("x'", "'")]
        COMMANDS: ClassVar[set[Any]] = set()
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **_KEPT_KEYWORDS,
            "MATCH_RECOGNIZE": _T.MATCH_RECOGNIZE,
            "EXPLAIN": _T.DESCRIBE,
            "EXECUTE": _T.EXECUTE,
            "STRING": _T.TEXT,
            "BYTES": _T.VARBINARY,
            "TIMESTAMP_LTZ": _T.TIMESTAMPLTZ,
            "ROW": _T.STRUCT,
            "EMIT WITH": _T.SERDE_PROPERTIES,
            "EMIT WITHOUT": _T.SETTINGS,
            "FETCH": _T.FETCH,
            "DIV": _T.VAR,
        }

    class Parser(DefinitionParser):
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            **{name: _BASE_FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")},
            "JSON_VALUE": lambda self: self._parse_json_value(json_path=False),
            "JSON_QUERY": _json_query,
            "JSON_OBJECT": _json_pairs("JSON_OBJECT"),
            "JSON_OBJECTAGG": _json_pairs("JSON_OBJECTAGG"),
            "JSON_ARRAY": _json_values("JSON_ARRAY"),
            "JSON_ARRAYAGG": _json_values("JSON_ARRAYAGG"),
            "JSON_EXISTS": _json_exists,
            "FLOOR": _rounding(exp.Floor),
            "CEIL": _rounding(exp.Ceil),
            "CEILING": _rounding(exp.Ceil),
        }  # fmt: skip
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": _BASE.NO_PAREN_FUNCTION_PARSERS["CASE"]}
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {"ARRAY": exp.Array}
        ADD_JOIN_ON_TRUE = False
        #: None of ``x::INT``, ``x -> 'a'`` and their like.
        COLUMN_OPERATORS: ClassVar[dict[Any, Any]] = {_T.DOT: None}

    class Generator(generator.Generator):
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **generator.Generator.TRANSFORMS,
            **TRANSFORMS,
            nodes.Watermark: lambda self, e: (
                f"WATERMARK{' ' + self.sql(e, 'alias') if e.args.get('alias') else ''} FOR {self.sql(e, 'this')} AS "
                f"{self.sql(e, 'expression')}"
            ),
            nodes.SystemTimePeriod: lambda self, e: "PERIOD FOR SYSTEM_TIME",
            nodes.MetadataConstraint: lambda self, e: _metadata_sql(self, e),
            nodes.WindowTable: lambda self, e: _window_table_sql(self, e),
            nodes.ChangelogTable: lambda self, e: _changelog_table_sql(self, e),
            nodes.MatchPattern: lambda self, e: (
                f"PATTERN ({e.name})" + (f" WITHIN {self.sql(e, 'within')}" if e.args.get("within") else "")
            ),
            nodes.JsonCall: lambda self, e: _json_call_sql(self, e),
            nodes.TableCall: lambda self, e: f"TABLE({self.sql(e, 'this')})",
            nodes.Emit: lambda self, e: _emit_sql(self, e),
            nodes.OnConflict: lambda self, e: f"ON CONFLICT DO {e.name}",
            nodes.SetOption: lambda self, e: f"SET {self.sql(e, 'this')} = {self.sql(e, 'expression')}",
            nodes.Explain: lambda self, e: _explain_sql(self, e),
            nodes.StatementSet: lambda self, e: "EXECUTE STATEMENT SET BEGIN" if e.name == "BEGIN" else "END",
            exp.Property: lambda self, e: f"{self.sql(e, 'this')} = {self.sql(e, 'value')}",
            exp.ComputedColumnConstraint: lambda self, e: f"AS {self.sql(e, 'this')}",
            exp.Floor: lambda self, e: _rounding_sql(self, e, "FLOOR"),
            exp.Ceil: lambda self, e: _rounding_sql(self, e, "CEIL"),
            exp.Struct: lambda self, e: f"ROW({self.expressions(e, flat=True)})",
        }
        TYPE_MAPPING: ClassVar[dict[Any, Any]] = {
            **generator.Generator.TYPE_MAPPING,
            exp.DType.TEXT: "STRING",
            exp.DType.STRUCT: "ROW",
            exp.DType.TIMESTAMPLTZ: "TIMESTAMP_LTZ",
            exp.DType.VARBINARY: "BYTES",
        }

        def create_sql(self, expression: exp.Create) -> str:
            kind, this = expression.args["kind"], self.sql(expression, "this")
            exists = "IF NOT EXISTS " if expression.args.get("exists") else ""
            temporary = "TEMPORARY " if expression.args.get("temporary") else ""
            if kind == "FUNCTION":
                language = f" LANGUAGE {expression.args['language']}" if expression.args.get("language") else ""
                return f"CREATE {temporary}FUNCTION {exists}{this} AS {self.sql(expression, 'expression')}{language}"
            if kind == "VIEW":
                return f"CREATE {temporary}VIEW {exists}{this} AS {self.sql(expression, 'expression')}"
            partitioned = self.expressions(expression, key="partitioned", flat=True)
            options = ", ".join(self.sql(each) for each in expression.args["properties"].expressions)
            words = [f"CREATE {temporary}TABLE {exists}{this}"]
            if expression.args.get("comment") is not None:
                words.append(f"COMMENT {self.sql(expression, 'comment')}")
            words += [f"PARTITIONED BY ({partitioned})"] if partitioned else []
            words += [f"WITH ({options})"] if options else []
            words += [self.sql(expression, "like")] if expression.args.get("like") is not None else []
            words += [f"AS {self.sql(expression, 'expression')}"] if expression.expression is not None else []
            return " ".join(words)

        def matchrecognize_sql(self, expression: exp.MatchRecognize) -> str:
            clauses = []
            for key, words in (("partition_by", "PARTITION BY "), ("order", ""), ("measures", "MEASURES "), ("rows", ""),
                               ("after", ""), ("pattern", ""), ("define", "DEFINE ")):  # fmt: skip
                value = expression.args.get(key)
                if value:
                    if key == "define":
                        text = ", ".join(f"{self.sql(each, 'alias')} AS {self.sql(each, 'this')}" for each in value)
                    else:
                        text = ", ".join(map(self.sql, value)) if isinstance(value, list) else self.sql(value).strip()
                    clauses.append(words + text)
            return f" MATCH_RECOGNIZE ({' '.join(clauses)})"

        def insert_sql(self, expression: exp.Insert) -> str:
            emit = expression.args.get("emit")
            values = expression.args.get("partition") or ()
            partition = ", ".join(f"{self.sql(each, 'this')} = {self.sql(each, 'expression')}" for each in values)
            target = self.sql(expression, "this") + (f" PARTITION ({partition})" if partition else "")
            verb = "OVERWRITE" if expression.args.get("overwrite") else "INTO"
            text = f"INSERT {verb} {target} {self.sql(expression, 'expression')}"
            if expression.args.get("conflict") is not None:
                text += f" {self.sql(expression, 'conflict')}"
            return f"{text} {self.sql(emit)}" if emit is not None else text


def _explain_sql(self: Any, node: exp.Expr) -> str:
    details = ", ".join(node.args.get("details") or ())
    words = ["EXPLAIN", details, "STATEMENT SET BEGIN" if node.args.get("set") else "", self.sql(node, "this")]
    return " ".join(each for each in words if each)


def _metadata_sql(self: Any, node: exp.Expr) -> str:
    if node.args.get("header"):
        return "HEADER"
    source = f" FROM {self.sql(node, 'this')}" if node.args.get("this") else ""
    return f"METADATA{source}{' VIRTUAL' if node.args.get('virtual') else ''}"


def _window_table_sql(self: Any, node: exp.Expr) -> str:
    partition = self.expressions(node, key="partition_by", flat=True)
    inner = [f"TABLE {self.sql(node, 'source')}" + (f" PARTITION BY {partition}" if partition else "")]
    inner += [f"DESCRIPTOR({self.sql(node, 'descriptor')})", *(self.sql(each) for each in node.expressions)]
    alias = self.sql(node, "alias")
    return f"TABLE({node.name}({', '.join(inner)}))" + (f" AS {alias}" if alias else "")


def _changelog_table_sql(self: Any, node: exp.Expr) -> str:
    inner = [f"input => TABLE {self.sql(node, 'input')}"]
    if node.args.get("op"):
        inner.append(f"op => DESCRIPTOR({self.expressions(node, key='op', flat=True)})")
    if node.args.get("op_mapping"):
        inner.append(f"op_mapping => {self.sql(node, 'op_mapping')}")
    alias = self.sql(node, "alias")
    return f"{node.name}({', '.join(inner)})" + (f" AS {alias}" if alias else "")


def _emit_sql(self: Any, node: exp.Expr) -> str:
    parts = []
    for key in ("before", "after"):
        delay = node.args.get(key)
        if delay is not None:
            how = (
                "WITHOUT DELAY"
                if isinstance(delay, exp.Boolean)
                else f"WITH DELAY {self.sql(delay).removeprefix('INTERVAL ')}"
            )
            parts.append(f"{how} {key.upper()} WATERMARK")
    return "EMIT " + ", ".join(parts)


def _json_call_sql(self: Any, node: exp.Expr) -> str:
    texts = [self.sql(each) for each in node.expressions]
    if node.name.startswith("JSON_OBJECT"):
        texts = [f"KEY {key} VALUE {value}" for key, value in zip(texts[::2], texts[1::2], strict=True)]
    return f"{node.name}({', '.join(texts)} {node.args['nulls']} ON NULL)"


def _rounding_sql(self: Any, node: exp.Expr, name: str) -> str:
    unit = self.sql(node, "to")
    return f"{name}({self.sql(node, 'this')}{' TO ' + unit if unit else ''})"


class Blink(Flink):
    """Blink's and rsqldb's spelling: text may also be written in double quotes."""

    class Tokenizer(Flink.Tokenizer):
        QUOTES: ClassVar[list[Any]] = ["'", '"']
