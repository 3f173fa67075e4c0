"""The parser's part for statements: CREATE, INSERT, SET, EXPLAIN, statement sets, and tables in FROM that only Flink has.

Whatever is not parsed to its end is an error: nothing of a text is left out silently.
"""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot import tokens as sqlglot_tokens

from headrace_sql.reading import changelog_tables, nodes
from headrace_sql.reading.catalog_parser import NO_JAVA, CatalogParser
from headrace_sql.reading.nodes import EXPLAIN_DETAILS

_T: Any = sqlglot_tokens.TokenType  # type: ignore[attr-defined]
WINDOW_FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")


class DefinitionParser(CatalogParser):
    """Adds Flink's statements to sqlglot's queries."""

    #: Of the type that is being parsed: 1 for one that is in no other.
    _depth_of_types = 0

    STATEMENT_PARSERS: ClassVar[dict[Any, Any]] = {
        _T.CREATE: lambda self: self._parse_definition(),
        _T.INSERT: lambda self: self._parse_insert_into(),
        _T.SET: lambda self: self._parse_set_option(),
        _T.DESCRIBE: lambda self: self._parse_explain(),
        _T.BEGIN: lambda self: self._parse_begin(),
        _T.END: lambda self: self._parse_end(),
        _T.EXECUTE: lambda self: self._parse_execute(),
        _T.SEMICOLON: lambda self: exp.Semicolon(),
    }

    def _parse_statement(self) -> exp.Expr | None:
        if not self._curr:
            return None
        known = self._parse_by_first_word()
        if known is not None:
            return known
        if self._match_set(self.STATEMENT_PARSERS):
            made: exp.Expr = self.STATEMENT_PARSERS[self._prev.token_type](self)
            return made
        if self._curr.token_type in (_T.SELECT, _T.WITH, _T.L_PAREN, _T.VALUES):
            return self._parse_with_emit(self._parse_whole_query())
        self.raise_error(f"{self._curr.text.upper()} is not a statement that is known here")
        return None

    def _parse_whole_query(self) -> exp.Expr | None:
        """Parse a query, also one that begins with a query in brackets."""
        if not self._match(_T.L_PAREN, advance=False):
            return self._parse_select()
        query = self._parse_select(nested=True, parse_subquery_alias=False)
        return self._parse_query_modifiers(self._parse_set_operations(query))

    def _parse_with_emit(self, query: exp.Expr | None) -> exp.Expr | None:
        emit = self._parse_emit()
        if query is not None and emit is not None:
            query.meta["emit"] = emit
        return query

    def _expect(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            self.raise_error(f"expected {' '.join(words)}")

    # ------------------------------------------------------------------------------------------------------ CREATE

    def _parse_definition(self) -> exp.Expr:
        if self._take("OR", "REPLACE") or self._take("OR", "ALTER"):
            self._parse_replace_table()
        temporary = bool(self._match(_T.TEMPORARY))
        self._match_text_seq("SYSTEM")
        self._refuse_kind()
        for place in ("CATALOG", "DATABASE"):
            if self._take(place):
                return self._parse_create_place(place)
        if self._match(_T.TABLE):
            return self._parse_create_table(temporary)
        if self._match(_T.VIEW):
            return self._parse_create_view(temporary)
        if self._match(_T.FUNCTION):
            return self._parse_create_function(temporary)
        self.raise_error("expected TABLE, VIEW, FUNCTION, DATABASE or CATALOG")
        raise AssertionError

    def _parse_if_not_exists(self) -> bool:
        return bool(self._match_text_seq("IF", "NOT", "EXISTS"))

    def _parse_name(self) -> exp.Expr:
        if not self._curr:
            self.raise_error("expected a name")
        made = self._parse_table_parts(schema=True)
        if made is None:
            self.raise_error("expected a name")
        assert made is not None
        return made

    def _parse_create_table(self, temporary: bool) -> exp.Expr:
        exists = self._parse_if_not_exists()
        table = self._parse_name()
        elements = self._listed(self._parse_element_of_table) if self._match(_T.L_PAREN) else []
        comment = self._parse_string() if self._match_text_seq("COMMENT") else None
        if self._take("DISTRIBUTED"):
            self.raise_error(f"{nodes.REFUSAL}DISTRIBUTED: buckets are a matter of the other system", self._prev)
        partitioned: list[exp.Expr] = []
        if self._match(_T.PARTITION_BY) or self._match_text_seq("PARTITIONED", "BY"):
            self._match_l_paren()
            partitioned = self._listed(self._parse_id)
        options = self._options_in_brackets() if self._match(_T.WITH) else []
        like = self._parse_like_table() if self._take("LIKE") else None
        query = self._parse_with_emit(self._parse_whole_query()) if self._match(_T.ALIAS) else None
        schema = exp.Schema(this=table, expressions=elements)
        return exp.Create(
            this=schema, kind="TABLE", exists=exists, temporary=temporary, comment=comment, partitioned=partitioned,
            properties=exp.Properties(expressions=options), like=like, expression=query,
        )  # fmt: skip

    def _parse_element_of_table(self) -> exp.Expr:
        """An element, or the name alone of a column of CREATE TABLE … AS, which the query gives its type."""
        if self._next is not None and self._next.token_type in (_T.COMMA, _T.R_PAREN):
            return exp.ColumnDef(this=self._parse_id())
        return self._parse_element()

    def _parse_id(self) -> exp.Expr:
        found = self._parse_id_var(any_token=True)
        if found is None:
            self.raise_error("expected a name")
        assert found is not None
        return found

    def _parse_option(self) -> exp.Expr:
        """``'key' = 'value'``, ``key = 'value'``, ``a.b = 10``."""
        key = self._parse_option_name()
        if not self._match(_T.EQ):
            self.raise_error("expected = behind the option's name")
        value = self._parse_string() or self._parse_number() or self._parse_boolean() or self._parse_bare_value()
        if value is None:
            self.raise_error("expected the option's value, a text or a number")
        if isinstance(value, exp.Boolean):
            value = exp.Literal.string("true" if value.this else "false")
        return exp.Property(this=key, value=value)

    def _parse_bare_value(self) -> exp.Expr | None:
        """A value without quotes, as old texts have them: ``type = rocketmq``."""
        if not self._curr or self._curr.token_type in (_T.COMMA, _T.R_PAREN, _T.SEMICOLON):
            return None
        word = self._parse_option_name()
        made = exp.Literal.string(word.name)
        made.meta.update(word.meta)
        return made

    def _parse_types(self, *arguments: Any, **options: Any) -> Any:
        """Parse a type. ``NOT NULL`` inside of MAP, ARRAY and ROW is kept in its meta."""
        self._depth_of_types += 1
        try:
            is_of_column = self._depth_of_types > 1 or bool(options.get("schema"))
            self._refuse_multiset(is_of_column)
            made = super()._parse_types(*arguments, **options)
            while made is not None:
                behind = self._index
                if self._match_text_seq("NOT", "NULL"):
                    if self._depth_of_types > 1:
                        made.meta[nodes.NOT_NULL] = True
                else:
                    self._match(_T.NULL)
                self._refuse_multiset(is_of_column)
                if is_of_column and self._match_text_seq("ARRAY"):  # INT NOT NULL ARRAY
                    made = exp.DataType(this=exp.DataType.Type.ARRAY, expressions=[made], nested=True)
                    continue
                if self._depth_of_types == 1:
                    self._retreat(behind)  # that of a column
                break
            return made
        finally:
            self._depth_of_types -= 1

    def _hide_array_suffixes(self) -> None:
        """Let ``INT ARRAY`` be read here: sqlglot takes what follows it for the array's size, also a comma and the next column."""
        depth = 0
        for token, following in pairwise(islice(self._tokens, self._index, None)):
            depth += (token.token_type in (_T.LT, _T.L_PAREN)) - (token.token_type in (_T.GT, _T.R_PAREN))
            if depth < 0 or (depth == 0 and token.token_type == _T.COMMA):
                return
            if token.token_type == _T.ARRAY and following.token_type not in (_T.LT, _T.L_BRACKET, _T.L_PAREN):
                token.token_type = _T.VAR

    def _refuse_multiset(self, is_of_column: bool) -> None:
        """Refuse the type MULTISET: a format has it as counts by value (JSON: an object), which no column here would be read as."""
        if is_of_column and self._curr and self._curr.text.upper() == "MULTISET":
            self.raise_error(
                "the type MULTISET is not supported: for values write ARRAY<…>, for counts by value MAP<…, INT>"
            )

    def _parse_element(self) -> exp.Expr:
        if self._match_text_seq("WATERMARK"):
            alias = None if self._match(_T.FOR, advance=False) else self._parse_id()
            self._expect("FOR")
            column = self._parse_column()
            self._expect("AS")
            return nodes.Watermark(this=column, expression=self._parse_disjunction(), alias=alias)
        if self._match_text_seq("PERIOD", "FOR", "SYSTEM_TIME"):
            return nodes.SystemTimePeriod()
        name = self._parse_id() if self._match_text_seq("CONSTRAINT") else None
        if self._match(_T.PRIMARY_KEY) or self._match_text_seq("PRIMARY", "KEY"):
            key = exp.PrimaryKey(expressions=self._parse_wrapped_csv(self._parse_id), options=self._parse_enforced())
            return key if name is None else exp.Constraint(this=name, expressions=[key])
        if name is not None or self._match_text_seq("UNIQUE"):
            self.raise_error("only PRIMARY KEY is known as a constraint")
        return self._parse_table_column()

    def _parse_enforced(self) -> list[str]:
        return ["NOT ENFORCED"] if self._match_text_seq("NOT", "ENFORCED") else []

    def _parse_table_column(self) -> exp.Expr:
        name = self._parse_id()
        if self._match(_T.ALIAS):
            kind: exp.Expr = exp.ComputedColumnConstraint(this=self._parse_disjunction())
            constraints = [exp.ColumnConstraint(kind=kind)]
            if self._match_text_seq("COMMENT"):
                self._parse_string()
            return exp.ColumnDef(this=name, constraints=constraints)
        self._hide_array_suffixes()
        data_type = self._parse_types(schema=True)
        if data_type is None:
            found = "" if self._curr is None else f", not {self._curr.text!r}"
            self.raise_error(f"expected the type of column {name.name}{found}")
        return exp.ColumnDef(this=name, kind=data_type, constraints=list(self._parse_constraints()))

    def _parse_constraints(self) -> Any:
        while True:
            if self._match_text_seq("NOT", "NULL"):
                kind: exp.Expr = exp.NotNullColumnConstraint()
            elif self._match(_T.NULL):
                kind = exp.NotNullColumnConstraint(allow_null=True)
            elif self._match(_T.PRIMARY_KEY) or self._match_text_seq("PRIMARY", "KEY"):
                kind = exp.PrimaryKeyColumnConstraint(options=self._parse_enforced())
            elif self._match_text_seq("COMMENT"):
                kind = exp.CommentColumnConstraint(this=self._parse_string())
            elif self._match_text_seq("HEADER"):
                kind = nodes.MetadataConstraint(header=True)
            elif self._match_text_seq("METADATA"):
                source = self._parse_string() if self._match(_T.FROM) else None
                kind = nodes.MetadataConstraint(this=source, virtual=bool(self._match_text_seq("VIRTUAL")))
            else:
                return
            yield exp.ColumnConstraint(kind=kind)

    def _parse_create_view(self, temporary: bool) -> exp.Expr:
        exists = self._parse_if_not_exists()
        this = self._parse_name()
        if self._match(_T.L_PAREN):
            this = exp.Schema(this=this, expressions=self._parse_csv(self._parse_id))
            self._match_r_paren()
        if self._match_text_seq("COMMENT"):
            self._parse_string()
        self._expect("AS")
        query = self._parse_kept_query()
        return exp.Create(this=this, kind="VIEW", exists=exists, temporary=temporary, expression=query)

    def _parse_create_function(self, temporary: bool) -> exp.Expr:
        exists = self._parse_if_not_exists()
        this = self._parse_name()
        self._expect("AS")
        path = self._parse_string()
        if path is None:
            self.raise_error("expected the class or function as text")
        language = self._parse_id().name if self._match_text_seq("LANGUAGE") else None
        if self._take("USING"):
            self.raise_error(
                f"{nodes.REFUSAL}USING {self._curr.text.upper() if self._curr else 'JAR'}: {NO_JAVA}", self._prev
            )
        return exp.Create(
            this=this, kind="FUNCTION", exists=exists, temporary=temporary, expression=path, language=language
        )

    # ------------------------------------------------------------------------------------------------------ INSERT

    def _parse_insert_into(self) -> exp.Expr:
        overwrite = bool(self._match(_T.OVERWRITE))
        if not overwrite and not self._match(_T.INTO):
            self.raise_error("expected INTO or OVERWRITE")
        this = self._parse_name()
        partition = self._parse_wrapped_csv(self._parse_partition_value) if self._match(_T.PARTITION) else []
        is_query = self._next is not None and self._next.token_type in (_T.SELECT, _T.WITH, _T.L_PAREN)
        if not is_query and self._match(_T.L_PAREN):
            this = exp.Schema(this=this, expressions=self._parse_csv(self._parse_target_column))
            self._match_r_paren()
        query = self._parse_derived_table_values() or self._parse_whole_query()
        if query is None:
            self.raise_error("expected a query or VALUES")
        made = exp.Insert(this=this, expression=query, conflict=self._parse_conflict(), partition=partition)
        made.set("overwrite", overwrite)
        emit = self._parse_emit()
        if emit is not None:
            made.args["emit"] = emit
            emit.parent = made
        return made

    def _parse_partition_value(self) -> exp.Expr:
        name = self._parse_id()
        if not self._match(_T.EQ):
            self.raise_error(f"expected = and the value of {name.name}")
        return exp.PropertyEQ(this=name, expression=self._parse_bitwise())

    def _parse_conflict(self) -> exp.Expr | None:
        if not (
            self._curr and self._curr.text.upper() == "ON" and self._next and self._next.text.upper() == "CONFLICT"
        ):
            return None
        start = self._curr
        self._advance(2)
        self._expect("DO")
        for word in ("NOTHING", "ERROR", "DEDUPLICATE"):
            if self._match_text_seq(word):
                made = nodes.OnConflict(this=exp.var(word))
                made.meta.update(start=start.start, end=self._prev.end)
                return made
        self.raise_error("expected NOTHING, ERROR or DEDUPLICATE")
        return None

    def _parse_target_column(self) -> exp.Expr:
        name = self._parse_id()
        self._parse_types()  # old texts write the type behind the name; the table says it already
        return name

    def _parse_emit(self) -> exp.Expr | None:
        if not (self._match(_T.SERDE_PROPERTIES) or self._match(_T.SETTINGS)):
            return None
        found: dict[str, exp.Expr] = {}
        while True:
            if "WITHOUT" in self._prev.text.upper():
                self._expect("DELAY")
                delay: exp.Expr = exp.true()
            else:
                self._expect("DELAY")
                amount = self._parse_string() or self._parse_number()
                delay = exp.Interval(this=amount, unit=self._parse_var(any_token=True))
            if self._match_text_seq("BEFORE"):
                key = "before"
            else:
                self._expect("AFTER")
                key = "after"
            self._expect("WATERMARK")
            if key in found:
                self.raise_error(f"EMIT says {key.upper()} WATERMARK twice", self._prev)
            found[key] = delay
            if not self._match(_T.COMMA):
                return nodes.Emit(**found)
            self._match_text_seq("EMIT")
            if not (self._match_text_seq("WITH") or self._match_text_seq("WITHOUT")):
                self.raise_error("expected WITH or WITHOUT DELAY")

    # ------------------------------------------------------------------------------------------------------ others

    def _parse_set_option(self) -> exp.Expr:
        if not self._curr:
            return nodes.ShowList(kind="OPTIONS")
        option = self._parse_option()
        return nodes.SetOption(this=option.this, expression=option.args["value"])

    def _parse_explain(self) -> exp.Expr:
        """``EXPLAIN [PLAN FOR | details] statement``, ``EXPLAIN [EXECUTE] STATEMENT SET BEGIN …``."""
        details = []
        if not self._match_text_seq("PLAN", "FOR") and self._curr and self._curr.text.upper() in EXPLAIN_DETAILS:
            details = self._parse_csv(self._parse_detail)
        index = self._index
        self._match(_T.EXECUTE)
        if self._match_text_seq("STATEMENT", "SET"):
            if not self._match(_T.BEGIN):
                self._expect("BEGIN")
            first = self._parse_statement() if self._curr else None
            return nodes.Explain(this=first, details=details, set=True)
        self._retreat(index)
        statement = self._parse_statement()
        if statement is None:
            self.raise_error("expected the statement to explain")
        return nodes.Explain(this=statement, details=details)

    def _parse_detail(self) -> str:
        word = self._parse_id().name.upper()
        if word not in EXPLAIN_DETAILS:
            self.raise_error(f"{word} is not a detail of EXPLAIN; {', '.join(EXPLAIN_DETAILS)} are", self._prev)
        return word

    def _parse_execute(self) -> exp.Expr | None:
        if self._match_text_seq("STATEMENT", "SET"):
            return self._parse_statement_set()
        return self._parse_statement()

    def _parse_begin(self) -> exp.Expr | None:
        self._expect("STATEMENT", "SET")
        return (self._curr and self._parse_statement()) or nodes.StatementSet(this=exp.var("BEGIN"))

    def _parse_statement_set(self) -> exp.Expr | None:
        """The text after EXECUTE STATEMENT SET: BEGIN, or AS BEGIN, and then the first INSERT."""
        self._match(_T.ALIAS)
        if not self._match(_T.BEGIN):
            self._expect("BEGIN")
        return self._parse_statement() if self._curr else nodes.StatementSet(this=exp.var("BEGIN"))

    def _parse_end(self) -> exp.Expr:
        return nodes.StatementSet(this=exp.var("END"))

    # ------------------------------------------------------------------------------------------------- tables in FROM

    def _parse_table(self, *arguments: Any, **options: Any) -> exp.Expr | None:
        wrapped = bool(self._match_pair(_T.TABLE, _T.L_PAREN, advance=False))
        if wrapped or changelog_tables.stands_here(self) or self._is_window_function():
            self._advance(2 if wrapped else 0)
            is_changelog = changelog_tables.stands_here(self)
            made = changelog_tables.changelog_table(self) if is_changelog else self._parse_window_table()
            if wrapped:
                self._match_r_paren()
            alias = self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS)
            if alias is not None:
                made.set("alias", alias)
            return made
        return super()._parse_table(*arguments, **options)

    def _is_window_function(self) -> bool:
        here, following = self._curr, self._next
        return bool(here and here.text.upper() in WINDOW_FUNCTIONS and following and following.token_type == _T.L_PAREN)

    def _parse_window_table(self) -> exp.Expr:
        name = self._curr.text.upper()
        if name not in WINDOW_FUNCTIONS:
            self.raise_error(f"{name} is not a window function; TUMBLE, HOP, CUMULATE and SESSION are")
        self._advance()
        self._match_l_paren()
        source, partition, descriptor = None, None, None
        lengths: list[exp.Expr] = []
        while True:
            word = self._curr.text.upper()
            if self._next.token_type == _T.FARROW:  # DATA => TABLE t, TIMECOL => DESCRIPTOR(ts), SIZE => …
                self._advance(2)
            if self._match(_T.TABLE):
                source = self._parse_name()
                if self._match(_T.PARTITION_BY):
                    wrapped = self._match(_T.L_PAREN)
                    partition = self._parse_csv(self._parse_column) if wrapped else [self._parse_column()]
                    if wrapped:
                        self._match_r_paren()
            elif self._match_text_seq("DESCRIPTOR"):
                self._match_l_paren()
                descriptor = self._parse_column()
                self._match_r_paren()
            else:
                length = self._parse_bitwise()  # an interval, or a sum or multiple of some
                if length is None:
                    self.raise_error("expected TABLE, DESCRIPTOR or INTERVAL")
                assert length is not None
                length.meta["name"] = word if word in ("SIZE", "SLIDE", "STEP", "GAP", "OFFSET") else ""
                lengths.append(length)
            if not self._match(_T.COMMA):
                break
        self._match_r_paren()
        if source is None or descriptor is None or not lengths:
            self.raise_error(f"{name} needs TABLE …, DESCRIPTOR(…) and INTERVAL …")
        return nodes.WindowTable(
            this=exp.var(name), source=source, partition_by=partition, descriptor=descriptor, expressions=lengths
        )

    def _parse_lateral(self) -> Any:
        index = self._index
        if self._match(_T.LATERAL) and self._match_pair(_T.TABLE, _T.L_PAREN):
            call = self._parse_function()
            if call is None:
                self.raise_error("expected the call of a table function")
            self._match_r_paren()
            return exp.Lateral(this=nodes.TableCall(this=call), alias=self._parse_table_alias())
        self._retreat(index)
        return super()._parse_lateral()

    # ----------------------------------------------------------------------------------------------- MATCH_RECOGNIZE

    def _parse_match_recognize(self) -> Any:
        if not self._match(_T.MATCH_RECOGNIZE):
            return None
        self._match_l_paren()
        made = exp.MatchRecognize(partition_by=self._parse_partition_by(), order=self._parse_order())
        self._expect("MEASURES")
        made.set("measures", self._parse_csv(self._parse_measure))
        for words in ("ONE ROW PER MATCH", "ALL ROWS PER MATCH"):
            if self._match_text_seq(*words.split()):
                made.set("rows", exp.var(words))
        if self._match_text_seq("AFTER", "MATCH"):
            self._expect("SKIP")
            made.set("after", exp.var("AFTER MATCH SKIP " + self._skip_strategy()))
        self._expect("PATTERN")
        made.set("pattern", self._parse_match_pattern())
        if self._match_text_seq("DEFINE"):
            made.set("define", self._parse_csv(self._parse_definition_of_variable))
        self._match_r_paren()
        made.set("alias", self._parse_table_alias())
        made.set("joins", list(iter(self._parse_join, None)))
        return made

    def _skip_strategy(self) -> str:
        for words in ("PAST LAST ROW", "TO NEXT ROW"):
            if self._match_text_seq(*words.split()):
                return words
        for words in ("TO FIRST", "TO LAST"):
            if self._match_text_seq(*words.split()):
                return f"{words} {self._parse_id().name}"
        self.raise_error("expected PAST LAST ROW, TO NEXT ROW, TO FIRST variable or TO LAST variable")
        raise AssertionError

    def _parse_measure(self) -> exp.Expr:
        this = self._parse_disjunction()
        if not self._match(_T.ALIAS):
            self.raise_error("expected AS behind the measure")
        return exp.Alias(this=this, alias=self._parse_id())

    def _parse_definition_of_variable(self) -> exp.Expr:
        name = self._parse_id()
        if not self._match(_T.ALIAS):
            self.raise_error(f"expected AS behind {name.name}")
        return exp.Alias(this=self._parse_disjunction(), alias=name)

    def _parse_match_pattern(self) -> exp.Expr:
        if not self._match(_T.L_PAREN):
            self.raise_error("expected (")
        start, depth = self._curr, 1
        while self._curr and depth:
            depth += (self._curr.token_type == _T.L_PAREN) - (self._curr.token_type == _T.R_PAREN)
            end = self._prev
            self._advance()
        if depth:
            self.raise_error("expected )")
        text = self._find_sql(start, end)
        within = self._parse_interval() if self._match_text_seq("WITHIN") else None
        return nodes.MatchPattern(this=exp.var(text), within=within)
