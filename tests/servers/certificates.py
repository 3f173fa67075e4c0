"""Certificates for the TLS variants of the servers, made anew for each server and thrown away with it."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)


@dataclass(frozen=True, kw_only=True)
class Certificates:
    """PEM files of one authority and what it signed; keys are unencrypted PKCS#8."""

    authority: Path
    """The authority's certificate: what a client trusts."""
    server: Path
    """The server's certificate, for localhost and 127.0.0.1."""
    server_key: Path
    client: Path
    """A client's certificate, with the common name "client"."""
    client_key: Path
    stranger_authority: Path
    """An authority that signed nothing here: a client that trusts only this one must refuse the server."""

    def client_context(self) -> ssl.SSLContext:
        """A context that trusts the authority and presents the client's certificate."""
        context = ssl.create_default_context(cafile=str(self.authority))
        context.load_cert_chain(self.client, self.client_key)
        return context


def make_certificates(directory: Path) -> Certificates:
    """Make an authority, a server's and a client's certificate below `directory`, valid for 30 days."""
    directory.mkdir(parents=True, exist_ok=True)
    authority_key, authority = _make_authority("headrace test authority")
    _, stranger = _make_authority("headrace stranger")
    files = Certificates(
        authority=directory / "authority.pem",
        server=directory / "server.pem",
        server_key=directory / "server.key",
        client=directory / "client.pem",
        client_key=directory / "client.key",
        stranger_authority=directory / "stranger.pem",
    )
    _write_certificate(files.authority, authority)
    _write_certificate(files.stranger_authority, stranger)
    for common_name, certificate_path, key_path, usage in (
        ("localhost", files.server, files.server_key, ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", files.client, files.client_key, ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        key = _make_key()
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]
        )
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        builder = (
            _builder(common_name, authority.subject, key)
            .add_extension(names, critical=False)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(identifier, critical=False)
        )
        _write_certificate(certificate_path, builder.sign(authority_key, hashes.SHA256()))
        _write_key(key_path, key)
    return files


def _make_key() -> rsa.RSAPrivateKey:
    # RSA rather than an elliptic curve: every server and client here takes it.
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _make_authority(common_name: str) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
    key = _make_key()
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(common_name, _name(common_name), key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


def _builder(common_name: str, issuer: x509.Name, key: rsa.RSAPrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # for a server whose clock runs behind
        .not_valid_after(now + _LIFETIME)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    data = key.private_bytes(encoding, form, serialization.NoEncryption())
    path.touch(mode=0o600)
    path.write_bytes(data)
