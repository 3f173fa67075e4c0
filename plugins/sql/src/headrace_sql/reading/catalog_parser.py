"""The parser's part for statements about definitions: DROP, ALTER, USE, SHOW, DESCRIBE, RESET, catalogs, databases.

Statements of Flink that have no meaning here are known too, and refused with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot import parser as sqlglot_parser
from sqlglot import tokens as sqlglot_tokens

from headrace_sql.reading import nodes

_T: Any = sqlglot_tokens.TokenType  # type: ignore[attr-defined]
NO_JAVA = "no Java runs here, so there are no JARs; a function is a Python function: CREATE FUNCTION f AS 'module:name'"
_FEW_MODULES = "there is one module of functions, core; plug-ins add functions when they are installed"
_OF_SINKS = "rows in a sink are changed by INSERT INTO with a query whose results change, or in the other system itself"
#: First words of statements that are refused, and why.
REFUSED_STATEMENTS: Mapping[str, str] = {
    "ADD": f"ADD JAR: {NO_JAVA}",
    "REMOVE": f"REMOVE JAR: {NO_JAVA}",
    "LOAD": f"LOAD MODULE: {_FEW_MODULES}",
    "UNLOAD": f"UNLOAD MODULE: {_FEW_MODULES}",
    "ANALYZE": "ANALYZE TABLE: plans here do not depend on statistics of tables",
    "CALL": "CALL: procedures belong to catalogs of Flink that are not here; call the system's own client",
    "DELETE": f"DELETE: {_OF_SINKS}",
    "UPDATE": f"UPDATE: {_OF_SINKS}",
    "TRUNCATE": f"TRUNCATE TABLE: {_OF_SINKS}",
    "STOP": "STOP JOB: a job is stopped by Ctrl-C, its handle, or headrace stop NAME of a server",
    "COMPILE": "COMPILE PLAN: a job goes on from its savepoint by the ids of its verbs; no plan is kept",
}
#: What follows CREATE, DROP, ALTER and is refused.
REFUSED_KINDS: Mapping[str, str] = {
    "MODEL": "models: call them in a Python function (CREATE FUNCTION f AS 'module:name')",
    "MATERIALIZED": "materialized tables: a job with an INSERT keeps a table fresh as long as it runs",
    "CONNECTION": "connections: options of each table say how it is reached, with secrets as '${NAME}'",
}
_REFUSED_SHOWN: Mapping[str, str] = {
    "JARS": NO_JAVA,
    "JOBS": "jobs run in the process that starts them; headrace jobs lists those of a server",
    "PARTITIONS": "partitions of files are not kept in a catalog: they are found when the table is read",
    "PROCEDURES": "procedures belong to catalogs of Flink that are not here",
    "MODELS": REFUSED_KINDS["MODEL"],
    "MATERIALIZED": REFUSED_KINDS["MATERIALIZED"],
}
_LISTS = ("CATALOGS", "DATABASES", "TABLES", "VIEWS", "FUNCTIONS", "MODULES")
_LIKE_FEATURES = (
    "ALL", "CONSTRAINTS", "DISTRIBUTION", "GENERATED", "METADATA", "OPTIONS", "PARTITIONS", "WATERMARKS",
)  # fmt: skip


class CatalogParser(sqlglot_parser.Parser):
    """Adds statements that show and change definitions. ``DefinitionParser`` below it reads the definitions themselves."""

    _parse_element: Callable[..., exp.Expr]
    _parse_option: Callable[..., exp.Expr]
    _parse_id: Callable[..., exp.Expr]
    _parse_name: Callable[..., exp.Expr]
    _expect: Callable[..., None]
    _parse_with_emit: Callable[..., exp.Expr | None]
    _parse_whole_query: Callable[..., exp.Expr | None]
    _parse_statement: Callable[..., exp.Expr | None]

    #: Statements by their first word, which is a keyword of sqlglot for some and a name for others.
    FIRST_WORDS: ClassVar[dict[str, str]] = {
        "DROP": "_parse_drop_definition", "ALTER": "_parse_alteration", "USE": "_parse_use_place", "SHOW": "_parse_show_list",
        "DESCRIBE": "_parse_description", "DESC": "_parse_description", "RESET": "_parse_reset", "REPLACE": "_parse_replace_table",
    }  # fmt: skip

    def _parse_by_first_word(self) -> exp.Expr | None:
        """Parse a statement that is known by its first word; None for others."""
        word = self._curr.text.upper()
        reason = REFUSED_STATEMENTS.get(word)
        if reason is not None:
            self.raise_error(f"{nodes.REFUSAL}{reason}")
        method = self.FIRST_WORDS.get(word)
        if method is None:
            return None
        self._advance()
        made: exp.Expr = getattr(self, method)()
        return made

    def _take(self, *words: str) -> bool:
        """Take words if they come next, whatever tokens sqlglot has for them."""
        index = self._index
        for word in words:
            if not self._curr or self._curr.text.upper() != word:
                self._retreat(index)
                return False
            self._advance()
        return True

    def _needed(self, *words: str) -> None:
        if not self._take(*words):
            self.raise_error(f"expected {' '.join(words)}")

    def _listed(self, parse: Callable[[], Any]) -> list[Any]:
        """Parse a list in brackets, separated by commas; a comma at the end is allowed. The opening bracket was read
        already.
        """
        made: list[Any] = []
        while not self._match(_T.R_PAREN):
            made.append(parse())
            if not self._match(_T.COMMA) and not self._match(_T.R_PAREN, advance=False):
                self.raise_error("expected , or )")
        return made

    def _options_in_brackets(self) -> list[exp.Expr]:
        self._match_l_paren()
        return self._listed(self._parse_option)

    def _keys_in_brackets(self) -> list[exp.Expr]:
        self._match_l_paren()
        return self._listed(lambda: self._text("an option's name"))

    def _text(self, what: str) -> exp.Expr:
        found = self._parse_string()
        if found is None:
            self.raise_error(f"expected {what} in quotes")
        assert found is not None
        return found

    def _refuse_kind(self) -> None:
        reason = REFUSED_KINDS.get(self._curr.text.upper()) if self._curr else None
        if reason is not None:
            self.raise_error(f"{nodes.REFUSAL}{reason}")

    # ---------------------------------------------------------------------------------------- CREATE CATALOG, DATABASE

    def _parse_create_place(self, kind: str) -> exp.Expr:
        """``CREATE CATALOG [IF NOT EXISTS] c [COMMENT '…'] WITH (…)``, ``CREATE DATABASE [IF NOT EXISTS] [c.]d …``."""
        exists = self._take("IF", "NOT", "EXISTS")
        name = self._parse_name() if kind == "DATABASE" else exp.Table(this=self._parse_id())
        comment = self._text("the comment") if self._take("COMMENT") else None
        options = self._options_in_brackets() if self._match(_T.WITH) else []
        return nodes.CreatePlace(this=name, kind=kind, exists=exists, comment=comment, options=options)

    def _parse_like_table(self) -> exp.Expr:
        """``LIKE t [(INCLUDING | EXCLUDING | OVERWRITING feature …)]``; LIKE is taken already."""
        source = self._parse_name()
        rules: list[tuple[str, str]] = []
        if self._match(_T.L_PAREN):
            while not self._match(_T.R_PAREN):
                how = self._curr.text.upper() if self._curr else ""
                if how not in ("INCLUDING", "EXCLUDING", "OVERWRITING"):
                    self.raise_error("expected INCLUDING, EXCLUDING or OVERWRITING")
                self._advance()
                feature = self._curr.text.upper() if self._curr else ""
                if feature not in _LIKE_FEATURES:
                    self.raise_error(f"expected one of {', '.join(_LIKE_FEATURES)}")
                self._advance()
                rules.append((how, feature))
        return nodes.LikeTable(this=source, rules=rules)

    def _parse_replace_table(self) -> exp.Expr:
        self.raise_error(
            f"{nodes.REFUSAL}REPLACE TABLE: headrace does not remove the rows of the old table; "
            "DROP TABLE, then CREATE TABLE … AS",
            self._prev,
        )
        raise AssertionError

    # --------------------------------------------------------------------------------------------------- DROP, ALTER

    def _parse_drop_definition(self) -> exp.Expr:
        temporary = self._take("TEMPORARY")
        self._take("SYSTEM")
        self._refuse_kind()
        kind = self._kind("CATALOG", "DATABASE", "TABLE", "VIEW", "FUNCTION")
        exists = self._take("IF", "EXISTS")
        name = self._parse_name()
        cascade = self._take("CASCADE")
        if not cascade:
            self._take("RESTRICT")
        return nodes.DropDefinition(this=name, kind=kind, exists=exists, temporary=temporary, cascade=cascade)

    def _kind(self, *kinds: str) -> str:
        word = self._curr.text.upper() if self._curr else ""
        if word not in kinds:
            self.raise_error(f"expected {', '.join(kinds[:-1])} or {kinds[-1]}")
        self._advance()
        return word

    def _parse_alteration(self) -> exp.Expr:
        temporary = self._take("TEMPORARY")
        self._take("SYSTEM")
        self._refuse_kind()
        kind = self._kind("TABLE", "VIEW", "FUNCTION", "DATABASE", "CATALOG")
        exists = self._take("IF", "EXISTS")
        name = self._parse_name()
        made = nodes.Alteration(this=name, kind=kind, exists=exists, temporary=temporary)
        getattr(self, f"_alter_{kind.lower()}")(made)
        return made

    def _alter_view(self, made: exp.Expr) -> None:
        if self._take("RENAME", "TO"):
            made.set("action", "RENAME TO")
            made.set("target", self._parse_name())
            return
        self._needed("AS")
        made.set("action", "AS")
        made.set("query", self._parse_kept_query())

    def _parse_kept_query(self) -> exp.Expr:
        """The query of a view, with its text as it is written: what SHOW CREATE VIEW shows, and catalogs keep."""
        start = self._curr
        query = self._parse_with_emit(self._parse_whole_query())
        if query is None:
            self.raise_error("expected a query")
        assert query is not None
        query.meta[nodes.WRITTEN] = self._find_sql(start, self._prev)
        return query

    def _alter_function(self, made: exp.Expr) -> None:
        self._needed("AS")
        made.set("action", "AS")
        made.set("value", self._text("the class or function"))
        if self._take("LANGUAGE"):
            made.set("language", self._parse_id().name)

    def _alter_database(self, made: exp.Expr) -> None:
        self._needed("SET")
        made.set("action", "SET")
        made.set("options", self._options_in_brackets())

    def _alter_catalog(self, made: exp.Expr) -> None:
        if self._take("COMMENT"):
            made.set("action", "COMMENT")
            made.set("value", self._text("the comment"))
        elif self._take("RESET"):
            made.set("action", "RESET")
            made.set("options", self._keys_in_brackets())
        else:
            self._alter_database(made)

    def _alter_table(self, made: exp.Expr) -> None:
        if self._take("RENAME"):
            if self._take("TO"):
                made.set("action", "RENAME TO")
                made.set("target", self._parse_name())
                return
            made.set("action", "RENAME")
            made.set("column", self._parse_id())
            self._needed("TO")
            made.set("value", self._parse_id())
        elif self._take("SET"):
            made.set("action", "SET")
            made.set("options", self._options_in_brackets())
        elif self._take("RESET"):
            made.set("action", "RESET")
            made.set("options", self._keys_in_brackets())
        elif self._take("DROP"):
            self._alter_table_drop(made)
        else:
            made.set("action", self._kind("ADD", "MODIFY"))
            self._refuse_parts_of_storage()
            in_brackets = self._match(_T.L_PAREN)
            parse = self._parse_placed_element
            made.set("elements", self._listed(parse) if in_brackets else [parse()])

    def _refuse_parts_of_storage(self) -> None:
        if self._curr and self._curr.text.upper() in ("PARTITION", "DISTRIBUTION", "IF"):
            self.raise_error(
                f"{nodes.REFUSAL}partitions and distributions of a table are not altered: they are a matter of the other system"
            )

    def _parse_placed_element(self) -> exp.Expr:
        """A column with FIRST or AFTER, a watermark or a key."""
        made = self._parse_element()
        if self._take("FIRST"):
            made.meta["place"] = ("FIRST", None)
        elif self._take("AFTER"):
            made.meta["place"] = ("AFTER", self._parse_id())
        return made

    def _alter_table_drop(self, made: exp.Expr) -> None:
        self._refuse_parts_of_storage()
        if self._take("PRIMARY", "KEY") or self._match(_T.PRIMARY_KEY):
            made.set("action", "DROP KEY")
        elif self._take("CONSTRAINT"):
            made.set("action", "DROP KEY")
            made.set("column", self._parse_id())
        elif self._take("WATERMARK"):
            made.set("action", "DROP WATERMARK")
        else:
            made.set("action", "DROP")
            made.set("elements", self._listed(self._parse_id) if self._match(_T.L_PAREN) else [self._parse_id()])

    # ------------------------------------------------------------------------------------------- USE, SHOW, DESCRIBE

    def _parse_use_place(self) -> exp.Expr:
        if self._take("MODULES"):
            self.raise_error(f"{nodes.REFUSAL}USE MODULES: {_FEW_MODULES}", self._prev)
        if self._take("CATALOG"):
            return nodes.UsePlace(this=exp.Table(this=self._parse_id()), kind="CATALOG")
        return nodes.UsePlace(this=self._parse_name(), kind="DATABASE")

    def _parse_show_list(self) -> exp.Expr:
        word = self._curr.text.upper() if self._curr else ""
        if word in _REFUSED_SHOWN:
            self.raise_error(f"{nodes.REFUSAL}SHOW {word}: {_REFUSED_SHOWN[word]}")
        if self._take("CURRENT"):
            return nodes.ShowList(kind=f"CURRENT {self._kind('CATALOG', 'DATABASE')}")
        if self._take("CREATE"):
            self._refuse_kind()
            kind = self._kind("TABLE", "VIEW", "CATALOG", "FUNCTION")
            return nodes.ShowList(kind=f"CREATE {kind}", this=self._parse_name())
        if self._take("COLUMNS"):
            if not (self._take("FROM") or self._take("IN")):
                self.raise_error("expected FROM or IN")
            return self._with_pattern(nodes.ShowList(kind="COLUMNS", this=self._parse_name()))
        user = self._take("USER")
        full = self._take("FULL")
        kind = self._kind(*_LISTS)
        made = nodes.ShowList(kind=f"USER {kind}" if user else f"FULL {kind}" if full else kind)
        if self._take("FROM") or self._take("IN"):
            made.set("this", self._parse_name())
        return self._with_pattern(made)

    def _with_pattern(self, made: exp.Expr) -> exp.Expr:
        made.set("negated", self._take("NOT"))
        if self._take("LIKE") or self._take("ILIKE"):
            made.set("ignore_case", self._prev.text.upper() == "ILIKE")
            made.set("pattern", self._text("a pattern"))
        elif made.args["negated"]:
            self.raise_error("expected LIKE or ILIKE")
        return made

    def _parse_description(self) -> exp.Expr:
        for kind in ("CATALOG", "DATABASE", "FUNCTION"):
            index = self._index
            if self._take(kind):
                extended = self._take("EXTENDED")
                if self._curr:
                    return nodes.DescribeDefinition(this=self._parse_name(), kind=kind, extended=extended)
                self._retreat(index)
        if self._curr and self._curr.text.upper() in ("JOB", "MODEL"):
            word = self._curr.text.upper()
            self.raise_error(f"{nodes.REFUSAL}DESCRIBE {word}: " + _REFUSED_SHOWN[f"{word}S"])
        extended = self._take("EXTENDED")
        return nodes.DescribeDefinition(this=self._parse_name(), kind="TABLE", extended=extended)

    def _parse_reset(self) -> exp.Expr:
        return nodes.ResetOption(this=self._parse_option_name() if self._curr else None)

    def _parse_option_name(self) -> exp.Expr:
        """``'key'``, ``key``, ``a.b-c``."""
        if self._match(_T.STRING):
            return exp.Literal.string(self._prev.text).update_positions(self._prev)
        start = self._curr
        words = [self._parse_id().name]
        while self._match(_T.DOT) or self._match(_T.DASH):
            words.append(("." if self._prev.token_type == _T.DOT else "-") + self._parse_id().name)
        return exp.Identifier(this="".join(words)).update_positions(start)
