"""Checks of the declared options that sources, sinks and codecs have in common."""

from __future__ import annotations

import logging
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from headrace.foundation.errors import HeadraceError, OptionError
from headrace.interfaces.settings import Secret, Settings, describe_options, option_fields

from headrace_contract.contract import Contract, expect, optional_hook, shortened, violated

_SECRET_WORDS = ("password", "passwd", "secret", "token", "api_key", "apikey", "credential", "private_key")
_SECRET = "contract-s3cr3t-7f3a"


class OptionChecks(Contract):
    """Checks of ``Settings``, for every kind of plug-in that has options."""

    def make_plugin(self) -> Any:
        """Return the plug-in object that is checked. Each kind of contract implements it."""
        raise NotImplementedError

    @optional_hook
    def make_with_secret(self, secret: str) -> Any:
        """Return the plug-in with ``secret`` as its password (or a similar option) and with options that make connecting fail."""
        raise NotImplementedError

    def settings_class(self) -> type[Settings]:
        """Return the declared options of the plug-in."""
        return typing.cast("type[Settings]", type(self.make_plugin()).Settings)

    def test_options_are_described(self) -> None:
        """Every option says what it does, because help and docs are made from it.

        Steps: describe the options of ``Settings``. Passes when each has a description.
        """
        bare = [option.name for option in describe_options(self.settings_class()) if not option.description.strip()]
        expect(
            not bare,
            expected="every option has a description",
            found=f"these have none: {', '.join(bare)}",
            mend='declare them as name: Annotated[type, option("what it does")] = default',
        )

    def test_unknown_option_is_named(self) -> None:
        """A misspelt option is an error when the job is built, with the option, the plug-in and the most similar option.

        Steps: misspell each declared option in turn, and validate. Passes when each raises such an OptionError.
        """
        settings, plugin = self.settings_class(), self.plugin or type(self).__name__
        names = [field.encode_name for field in option_fields(settings)]
        for name in names:
            wrong = f"{name[:-1]}{name[-1]}x"
            try:
                settings.of({wrong: 1}, plugin=plugin)
            except OptionError as error:
                text = str(error)
                near = any(known in (error.hint or "") for known in names)
                expect(
                    wrong in text and plugin in text and near,
                    expected=f"an OptionError that names {wrong!r}, plug-in {plugin!r} and the most similar option",
                    found=shortened(text),
                    mend="let Settings.of validate the names, or raise OptionError with option, plugin and hint",
                )
            else:
                violated(
                    expected=f"option {wrong!r} is refused",
                    found="it was accepted without an error",
                    mend="do not accept options that are not declared (keep forbid_unknown_fields)",
                )

    def test_secrets_are_declared(self) -> None:
        """An option that holds a secret is of type ``Secret``, so that no message, log or repr shows it.

        Steps: look at the options whose names have a word for a secret (password, token, …). Passes when each is a ``Secret``.
        """
        hints = typing.get_type_hints(self.settings_class())
        plain = [
            name
            for name, kind in hints.items()
            if any(word in name.lower() for word in _SECRET_WORDS)
            and kind is not Secret
            and Secret not in typing.get_args(kind)
        ]
        expect(
            not plain,
            expected="options that hold secrets are of type headrace.Secret",
            found=f"{', '.join(plain)} would show in logs and repr",
            mend="declare them as Annotated[Secret, option(...)] and call reveal() where they are used",
        )

    def test_secrets_stay_hidden(self, caplog: pytest.LogCaptureFixture) -> None:
        """No repr, error or log shows a secret, also when connecting fails.

        Steps: make the plug-in with a known secret; take its repr and str and the repr of its settings; let it fail to
        connect, and take the error with its causes, and the log. Passes when the secret is in none of them.
        """
        self.need("make_with_secret")
        with caplog.at_level(logging.DEBUG):
            plugin = self.make_with_secret(_SECRET)
            shown = {"repr of the plug-in": repr(plugin), "str of the plug-in": str(plugin)}
            shown["repr of its settings"] = repr(plugin.settings)
            try:
                self.use(plugin)
            except Exception as error:  # of any type: its text is checked
                for number, cause in enumerate(_causes(error)):
                    shown[f"error {number} ({type(cause).__name__})"] = f"{cause} {cause!r}"
        shown["log"] = caplog.text
        for where, text in shown.items():
            expect(
                _SECRET not in text,
                expected="the secret is shown nowhere",
                found=f"it is in the {where}: {shortened(text)}",
                mend="keep it in a Secret, call reveal() only to send it, and do not quote addresses that contain it",
            )

    def use(self, plugin: Any) -> None:
        """Use the plug-in so that it connects. Each kind of contract implements it."""
        raise NotImplementedError


def _causes(error: BaseException) -> Iterator[BaseException]:
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__


@contextmanager
def raises_clearly(kind: type[HeadraceError], *, what: str, mend: str, hint: bool = True) -> Iterator[None]:
    """Fail the check unless the block raises ``kind``; with ``hint``, the error must have a hint too.

    ``what`` names in messages what the block does. Another error than ``kind`` fails the check with an AssertionError.
    """
    __tracebackhide__ = True
    try:
        yield
    except kind as error:
        if hint and not error.hint:
            violated(
                expected=f"{what} raises {kind.__name__} with a hint what to change",
                found=f"it has no hint: {shortened(str(error))}",
                mend="pass hint='…' to the error",
            )
    except Exception as error:
        raise AssertionError(_other_error(kind, what, error, mend)) from error
    else:
        violated(expected=f"{what} raises {kind.__name__}", found="nothing was raised", mend=mend)


def _other_error(kind: type[HeadraceError], what: str, error: Exception, mend: str) -> str:
    return (
        f"\n  expected: {what} raises {kind.__name__}\n  but:      {type(error).__name__}: {shortened(str(error))}"
        f"\n  mend:     {mend}"
    )
