"""The contract of codecs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from headrace.flow.messages import CHANGE, Bodies
from headrace.flow.schema import Schema
from headrace.interfaces.codec import Codec, Decoded

from headrace_contract.contract import expect, for_each, shortened, violated
from headrace_contract.operator_harness import expect_same_frame
from headrace_contract.options import OptionChecks
from headrace_contract.pickling import through_pickle
from headrace_contract.values import BASIC_TYPES, edge_values, mixed_rows

_SEED = 20240229


class CodecHarness(OptionChecks):
    """The part of ``CodecContract`` that an author fills in."""

    #: The columns of the rows in most checks.
    schema: ClassVar[Mapping[str, Any]] = {"id": "int64", "text": "string", "amount": "float64", "flag": "boolean"}
    #: The types whose values are the same after encoding and decoding.
    types: ClassVar[Sequence[str]] = BASIC_TYPES
    #: False when the format cannot tell NULL from other values.
    nullable: ClassVar[bool] = True
    #: False for a format that can only be read: then override ``make_body``.
    encodes: ClassVar[bool] = True
    #: True when a body may give several rows, or none. Then the bodies of ``make_body`` still give one row each.
    several_rows: ClassVar[bool] = False
    #: True when bodies are lines of files, so that they have no newline in them.
    one_line: ClassVar[bool] = True
    #: How many damaged bodies the checks make.
    fuzzed_bodies: ClassVar[int] = 400

    def make_codec(self) -> Codec:
        """Return a new codec."""
        raise NotImplementedError

    def make_row(self, number: int) -> dict[str, Any]:
        """Return a row of ``schema``, a different one for each number, with NULLs if the format has them."""
        (row,) = mixed_rows(Schema.of(self.schema), number, 1)
        return (
            row if self.nullable else {**self._without_null(number), **{k: v for k, v in row.items() if v is not None}}
        )

    def make_body(self, row: dict[str, Any]) -> bytes:
        """Return the body of a row. The default encodes it with the codec."""
        frame = pl.DataFrame([row], schema=dict(self.columns), orient="row")
        return bytes(self.make_codec().encoder(self.columns).encode(frame)[0])

    def edge_values(self, type_name: str) -> Sequence[Any]:
        """Return the values at the limits of a type that the format must keep. Override it if its range is smaller."""
        return edge_values(type_name)

    def bad_bodies(self) -> Sequence[bytes]:
        """Return bodies that the decoder must refuse. Default: none. The damaged bodies of the checks may be good or bad."""
        return ()

    # ------------------------------------------------------------------------------------------- the checks use

    def make_plugin(self) -> Any:
        return self.make_codec()

    def use(self, plugin: Any) -> None:
        plugin.decoder(self.columns).decode(Bodies.of([b"x"]))

    @property
    def columns(self) -> Schema:
        """The columns of ``schema``."""
        return Schema.of(self.schema)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return the rows with the numbers 0 to ``count`` - 1."""
        return [self.make_row(number) for number in range(count)]

    def decode(self, bodies: Sequence[bytes] | Bodies, codec: Codec | None = None) -> Decoded:
        """Decode bodies to all columns. Fails the check if the decoder raises an error."""
        __tracebackhide__ = True
        made = bodies if isinstance(bodies, Bodies) else Bodies.of(bodies)
        used = codec or self.make_codec()
        decoder = used.decoder(self.columns)
        try:
            return self._without_kinds(used, decoder.decode(made))
        except Exception as error:
            shown = next((body for body in made if self._raises(body)), made[0] if len(made) else b"")
            violated(
                expected="decode() raises no error, whatever the bodies hold",
                found=f"{type(error).__name__}: {shortened(str(error))}, for {shortened(shown)} among others",
                mend="return such a body in Decoded.bad, with the reason",
            )

    def damaged(self) -> list[bytes]:
        """Return bodies that were cut, changed and mixed, the same ones every time."""
        return list(
            _damaged([self.make_body(row) for row in self.rows(20)], self.fuzzed_bodies, one_line=self.one_line)
        )

    def _without_kinds(self, codec: Codec, decoded: Decoded) -> Decoded:
        """Return what was decoded without the kinds of changes. Fails the check if they are there and not declared, or the reverse."""
        __tracebackhide__ = True
        declared = codec.changes() is not None
        expect(
            (CHANGE in decoded.frame.columns) == declared,
            expected=f"{'the' if declared else 'no'} column {CHANGE!r}, as changes() says",
            found=f"{decoded.frame.columns}",
            mend="return SourceChanges in changes() if the rows say what changes, and put that column behind the others",
        )
        return replace(decoded, frame=decoded.frame.drop(CHANGE)) if declared else decoded

    def _raises(self, body: bytes) -> bool:
        try:
            self.make_codec().decoder(self.columns).decode(Bodies.of([body]))
        except Exception:  # this is the body to show in the message
            return True
        return False

    def _without_null(self, number: int) -> dict[str, Any]:
        from headrace_contract.values import sample_rows

        return sample_rows(self.columns, number, 1)[0]


class CodecContract(CodecHarness):
    """What every codec must do. An author gives ``make_codec``; see docs/contract-suite.md.

    class TestMyCodec(CodecContract):
        def make_codec(self):
            return MyCodec(MyCodec.Settings.of({}))
    """

    def test_round_trip(self) -> None:
        """Rows that are encoded and then decoded are the same.

        Steps: encode 50 rows (NULLs among them), decode the bodies. Passes when the frame is the same.
        """
        self._need_encoder()
        frame = self._frame(self.rows(50), self.columns)
        bodies = self.make_codec().encoder(self.columns).encode(frame)
        decoded = self.decode(list(bodies))
        self._expect_good(
            decoded,
            frame,
            what="the rows that were encoded",
            mend="let the decoder read the form that the encoder writes",
        )

    def test_decodes_bodies(self) -> None:
        """The author's bodies give the author's rows, with the columns and types of the schema.

        Steps: make the bodies of 20 rows and decode them. Passes when the frame has these rows, in the schema's types.
        """
        rows = self.rows(20)
        decoded = self.decode([self.make_body(row) for row in rows])
        self._expect_good(
            decoded, self._frame(rows, self.columns), what="the rows", mend="decode each body to one row of the schema"
        )

    @for_each("type_name", "types")
    def test_values_of_type(self, type_name: str) -> None:
        """Every type that the format supports keeps its values, also those at its limits, and NULL.

        Steps: encode and decode the values at the limits of the type (``edge_values``). Passes when they are the same.
        """
        self._need_encoder()
        schema = Schema.of({"id": "int64", "value": type_name})
        values: list[Any] = [*self.edge_values(type_name), *([None] if self.nullable else [])]
        frame = self._frame([{"id": number, "value": value} for number, value in enumerate(values)], schema)
        codec = self.make_codec()
        bodies = codec.encoder(schema).encode(frame)
        decoded = self._without_kinds(codec, codec.decoder(schema).decode(Bodies.of(list(bodies))))
        self._expect_good(
            decoded,
            frame,
            what=f"values of {type_name}",
            mend=f"write {type_name} so that the decoder reads the same values, or leave it out of `types`",
        )

    def test_one_body_per_row(self) -> None:
        """The encoder gives one body per row. In formats of lines, no body has a newline in it.

        Steps: encode 50 rows, and a row with a text of several lines. Passes when there are as many bodies as rows, and
        ``encode_lines`` is these bodies, each ended by a newline.
        """
        self._need_encoder()
        rows = self.rows(50)
        for name, kind in self.columns.items():
            if kind == pl.String():
                rows[0][name] = "two\nlines"
        frame = self._frame(rows, self.columns)
        encoder = self.make_codec().encoder(self.columns)
        bodies = list(encoder.encode(frame))
        mend = "return one bytes object per row; escape newlines, or declare one_line = False"
        expect(len(bodies) == 50, expected="50 bodies", found=f"{len(bodies)}", mend=mend)
        if self.one_line:
            broken = [body for body in bodies if b"\n" in body]
            expect(not broken, expected="bodies without newlines", found=shortened(broken[:1]), mend=mend)
            lines = encoder.encode_lines(frame)
            whole = b"".join(body + b"\n" for body in bodies)
            expect(
                lines == whole,
                expected=shortened(whole),
                found=shortened(lines),
                mend="encode_lines must return the bodies of encode, each with a newline",
            )

    def test_every_body_is_accounted_for(self) -> None:
        """Every body gives a row or a bad body with a reason, whatever it holds: no error is raised, no body is lost.

        Steps: decode damaged bodies (``fuzzed_bodies``) between good ones. Passes when each body is a row or a bad body,
        once, rows are in order, bad bodies have reasons, and no good body is refused. A body of a format of changes, or with
        ``several_rows``, may give several rows or say nothing.
        """
        good = [self.make_body(row) for row in self.rows(20)]
        bodies = [body for number, body in enumerate(self.damaged()) for body in (body, good[number % 20])]
        decoded = self.decode(bodies)
        kept = self._kept(decoded, len(bodies))
        refused = [bad.row for bad in decoded.bad]
        mend = "Decoded.rows has the numbers of the bodies in the frame, in order; Decoded.bad has the others"
        if self.several_rows or self.make_codec().changes() is not None:
            said = sorted({*kept, *refused})
            accounted = len(said) == len(set(kept)) + len(refused) and set(said) <= set(range(len(bodies)))
        else:
            accounted = sorted(kept + refused) == list(range(len(bodies)))
        expect(
            len(kept) == decoded.frame.height and accounted,
            expected=f"each of {len(bodies)} bodies once, in the frame or in bad",
            found=f"a frame of {decoded.frame.height} rows, {len(kept)} numbers of rows, {len(refused)} bad bodies",
            mend=mend,
        )
        expect(kept == sorted(kept), expected="rows in the order of bodies", found=shortened(kept), mend=mend)
        mute = [bad.row for bad in decoded.bad if not bad.reason.strip()]
        expect(
            not mute, expected="a reason for each bad body", found=f"none for {mute[:3]}", mend="give BadBody a reason"
        )
        lost = [row for row in range(1, len(bodies), 2) if row in set(refused)]
        expect(
            not lost,
            expected="good bodies are good also next to damaged ones",
            found=f"{len(lost)} good bodies are refused, such as {shortened(bodies[lost[0]])}" if lost else "",
            mend="if the whole batch cannot be decoded, decode it body by body",
        )

    def test_bad_bodies_are_refused(self) -> None:
        """A body that is not a row of this format is refused; it does not become a row of NULLs.

        Steps: decode the author's ``bad_bodies``. Passes when all are in ``Decoded.bad``.
        """
        bodies = list(self.bad_bodies())
        if not bodies:
            pytest.skip(f"not checked: {type(self).__name__} does not implement bad_bodies()")
        decoded = self.decode(bodies)
        taken = [bodies[row] for row in self._kept(decoded, len(bodies))]
        expect(
            not taken,
            expected="all bad bodies in Decoded.bad",
            found=f"these became rows: {shortened(taken[:3])}",
            mend="return bodies that do not follow the format in Decoded.bad, with the reason",
        )

    def test_bodies_are_decoded_by_themselves(self) -> None:
        """Whether a body is good, and its values, depend on that body alone, because batches end anywhere.

        Steps: decode damaged (``fuzzed_bodies``) and some good bodies all at once, each alone, and in another order. Passes
        when each body gives the same values, or is bad for the same reason, every time.
        """
        bodies = [*self.damaged(), *(self.make_body(row) for row in self.rows(20))]
        whole = self._by_body(bodies)
        order = list(range(len(bodies)))
        random.Random(_SEED).shuffle(order)
        mixed = self._by_body([bodies[i] for i in order])
        mend = "parse each body by the schema; infer nothing from other bodies"
        for place, number in enumerate(order):
            (alone,) = self._by_body([bodies[number]])
            for which, found in (("alone", alone), ("in another order", mixed[place])):
                expect(
                    repr(found) == repr(whole[number]),
                    expected=f"{shortened(bodies[number])} gives the same {which} as with all others: {shortened(whole[number])}",
                    found=shortened(found),
                    mend=mend,
                )

    def test_columns_can_be_chosen(self) -> None:
        """A decoder made for some columns gives exactly these, in that order, with the same values.

        Steps: decode to each single column, and to all in reverse order. Passes when the values are those of the whole frame.
        """
        codec = self.make_codec()
        bodies = Bodies.of([self.make_body(row) for row in self.rows(20)])
        whole, names = self.decode(bodies, codec).frame, list(self.columns)
        for chosen in (*([name] for name in names), names[::-1]):
            frame = self._without_kinds(codec, codec.decoder(self.columns, chosen).decode(bodies)).frame
            what, mend = f"columns {chosen}", "select the requested columns, in the requested order"
            expect(frame.columns == chosen, expected=what, found=f"{frame.columns}", mend=mend)
            expect_same_frame(frame, whole.select(chosen), what=what, mend=mend)

    def test_no_bodies(self) -> None:
        """Without bodies, the frame has no rows, but the columns and types of the schema.

        Steps: decode no bodies, and bad bodies only if there are some. Passes when the frame has the schema's columns.
        """
        bad = [body for body in self.bad_bodies() if self.decode([body]).bad]
        for bodies in ([], bad):
            frame = self.decode(bodies).frame
            expect(
                dict(frame.schema) == dict(self.columns) and frame.height == 0,
                expected=f"no rows of {self.columns!r}",
                found=f"{frame.height} rows of {dict(frame.schema)}",
                mend="make the frame with schema=dict(schema), also if it has no rows",
            )

    def test_bodies_lie_anywhere(self) -> None:
        """Bodies are slices of a buffer that holds other bytes too.

        Steps: decode bodies that have garbage between them, and every other body of a batch. Passes when the rows are
        the same as for bodies side by side.
        """
        bodies = [self.make_body(row) for row in self.rows(20)]
        garbage, buffer, starts, ends = b'}\n{"', b"", [], []
        for body in bodies:
            buffer += garbage
            starts.append(len(buffer))
            buffer += body
            ends.append(len(buffer))
        scattered = Bodies(buffer + garbage, np.array(starts, dtype=np.int64), np.array(ends, dtype=np.int64))
        mend = "use bodies[i], or joined(); parse the buffer itself only if newline_separated"
        expect_same_frame(self.decode(scattered).frame, self.decode(bodies).frame, what="scattered bodies", mend=mend)
        some = Bodies.of(bodies).take(np.arange(0, 20, 2))
        expect_same_frame(self.decode(some).frame, self.decode(bodies[::2]).frame, what="every other body", mend=mend)

    def test_survives_pickle(self) -> None:
        """The plan, and the codecs in it, are sent to worker processes with cloudpickle.

        Steps: send the codec through cloudpickle and decode with the copy. Passes when the frame is the same.
        """
        copy = through_pickle(self.make_codec(), what="a codec")
        bodies = [self.make_body(row) for row in self.rows(20)]
        wanted = self.decode(bodies).frame
        expect_same_frame(
            self.decode(bodies, copy).frame, wanted, what="decoded by the copy", mend="keep everything in attributes"
        )

    # ------------------------------------------------------------------------------------------------- private

    def _need_encoder(self) -> None:
        if not self.encodes:
            pytest.skip("not checked: the format can only be read (encodes = False)")

    def _frame(self, rows: Sequence[dict[str, Any]], schema: Schema) -> pl.DataFrame:
        return pl.DataFrame(list(rows), schema=dict(schema), orient="row")

    def _kept(self, decoded: Decoded, count: int) -> list[int]:
        if decoded.rows is not None:
            return [int(row) for row in decoded.rows]
        return list(range(count))[: decoded.frame.height]

    def _by_body(self, bodies: Sequence[bytes]) -> list[Any]:
        """Return, per body, its row as a tuple or the reason why it is bad."""
        decoded = self.decode(bodies)
        results: list[Any] = [None] * len(bodies)
        for row, values in zip(self._kept(decoded, len(bodies)), decoded.frame.rows(), strict=False):
            results[row] = values if results[row] is None else [results[row], values]
        for bad in decoded.bad:
            results[bad.row] = f"bad: {bad.reason}"
        return results

    def _expect_good(self, decoded: Decoded, wanted: pl.DataFrame, *, what: str, mend: str) -> None:
        __tracebackhide__ = True
        if decoded.bad:
            bad = decoded.bad[0]
            violated(expected=f"{what}: all bodies are good", found=f"body {bad.row} is bad: {bad.reason}", mend=mend)
        expect_same_frame(decoded.frame, wanted, what=what, mend=mend)
        columns = decoded.frame.columns
        expect(columns == wanted.columns, expected=f"{wanted.columns}", found=f"{columns}", mend=mend)


_ODD = (
    b"", b" ", b"\t", b"null", b"true", b"17", b'"text"', b"[]", b"{}", b"[[]]", b"{", b"}", b"\xef\xbb\xbf{}", b"\xff\xfe",
    b"\x00", b"a,b,c,d,e,f", b'"', b'""', b"'", b",,,", b"[" * 5000, b'{"a":' * 3000, b"9" * 400, b"-", b"1e999", b"NaN",
    b"x" * 200_000, b'{"id": 1, "id": 2}', b'{"text": "\\ud800"}', b'{"id": 99999999999999999999}', b'{"id": "x"}',
    b'{"unknown": 1}', b"\xc3", b"\xed\xa0\x80",
)  # fmt: skip


def _damaged(good: Sequence[bytes], count: int, *, one_line: bool) -> Iterator[bytes]:
    chance = random.Random(_SEED)
    yield from _ODD
    for _ in range(max(0, count - len(_ODD))):
        body = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body) + 1)
            kind = chance.randrange(5)
            if kind == 0:
                del body[at:]
            elif kind == 1:
                body[at : at + 1] = bytes([chance.randrange(256)])
            elif kind == 2:
                body[at:at] = bytes([chance.randrange(256)])
            elif kind == 3:
                del body[at : at + chance.randint(1, 4)]
            else:
                body[at:at] = chance.choice(good)[: chance.randint(1, 12)]
        yield bytes(body).replace(b"\n", b" ") if one_line else bytes(body)
