"""The account for a cluster with access control, and the signature that proves it.

Every request, to name servers too, carries AccessKey, Signature and, if there is one, SecurityToken. The signature is
base64(HMAC-SHA1(secret key, content)), where the content is the values of all extension fields but the signature
itself, in the order of the fields' names, followed by the body. Brokers of 4.x (`aclEnable=true`) and of 5.x
(`authenticationEnabled=true`) check the same signature: what differs is only how an operator declares users and rights.

Source: Apache RocketMQ, `acl.common.AclUtils`, `acl.common.AclSigner`; `auth.authentication.builder` for 5.x.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass, field

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account: access key (4.x) or user name (5.x), and its secret. The secret and the token are never shown."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def sign(self, fields: dict[str, str], body: bytes) -> dict[str, str]:
        """The fields, with our key and the signature of fields and body.

        Called for each request just before it is encoded; nothing may be added to the fields afterwards.
        """
        signed = {**fields, ACCESS_KEY: self.access_key}
        if self.security_token is not None:
            signed[SECURITY_TOKEN] = self.security_token
        content = "".join(signed[name] for name in sorted(signed)).encode() + body
        digest = hmac.new(self.secret_key.encode(), content, hashlib.sha1).digest()
        signed[SIGNATURE] = base64.b64encode(digest).decode()
        return signed
