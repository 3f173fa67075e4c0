"""Signatures, and that secrets are not shown."""

from __future__ import annotations

import base64
import hashlib
import hmac

from headrace_rocketmq import Credentials


def test_a_signature_known_from_elsewhere() -> None:
    # HMAC-SHA1 of "RocketMQ" with the key "12345678"; the content is the values in the order of their names.
    signed = Credentials("Rocket", "12345678").sign({}, b"MQ")
    assert signed == {"AccessKey": "Rocket", "Signature": "IUc8rrO/0gDch8CjObLQsW2rsiA="}


def test_fields_are_signed_in_the_order_of_their_names_and_the_body_last() -> None:
    fields = {"topic": "t", "b": "2", "a": "1"}
    signed = Credentials("user", "secret", "token").sign(fields, b"body")
    content = b"user" + b"token" + b"1" + b"2" + b"t" + b"body"  # AccessKey, SecurityToken, a, b, topic
    assert signed["Signature"] == base64.b64encode(hmac.new(b"secret", content, hashlib.sha1).digest()).decode()
    assert signed["SecurityToken"] == "token"
    assert fields == {"topic": "t", "b": "2", "a": "1"}


def test_secrets_are_not_shown() -> None:
    shown = repr(Credentials("user", "hidden-key", "hidden-token"))
    assert "user" in shown
    assert "hidden" not in shown
