"""A broker of Kafka that asks for credentials and has a certificate, both made here."""

from __future__ import annotations

from pathlib import Path

import trustme
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from penstock.streams.nats.client.server import free_ports
from tests.helpers.kafka.broker import Brokers

__all__ = ["PASSWORD", "USER", "SecuredBrokers"]

USER, PASSWORD = "billing", "s3cret"

_SCRAM = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_MODULES = "org.apache.kafka.common.security"
_JAAS = {
    "plain": f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";',
    "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
    "oauthbearer": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="broker";',
}


class SecuredBrokers(Brokers):
    """One broker whose addresses differ in what they ask for.

    `servers` asks for nothing, `tls` has a certificate, `mutual` wants one of the client as well,
    and `sasl` has a certificate and wants credentials, by any mechanism. `ca` is the path of the
    authority that both sides trust, `client` and `client_key` those of a certificate that it has
    issued; `stranger`, `stranger_cert` and `stranger_key` are those of another authority.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        tls, mutual, sasl = self._secured = free_ports(3)
        self.tls, self.mutual, self.sasl = (f"127.0.0.1:{port}" for port in (tls, mutual, sasl))
        authority, other = trustme.CA(), trustme.CA()
        self.ca, self.stranger = str(folder / "ca.pem"), str(folder / "stranger.pem")
        authority.cert_pem.write_to_path(self.ca)
        other.cert_pem.write_to_path(self.stranger)
        self._store = folder / "broker.pem"
        self._store.write_bytes(b"".join(_pems(authority.issue_cert("127.0.0.1"))))
        self.client, self.client_key = _files(folder, "client", authority)
        self.stranger_cert, self.stranger_key = _files(folder, "other", other)

    def __enter__(self) -> SecuredBrokers:
        super().__enter__()
        with AdminClient({"bootstrap.servers": self.servers, "log_level": 0}) as admin:
            for mechanism in _SCRAM.values():
                user = UserScramCredentialUpsertion(
                    USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
                )
                admin.alter_user_scram_credentials([user])[USER].result(30)
        return self

    def _more(self, number: int) -> dict[str, str]:
        tls, mutual, sasl = self._secured
        secured = f"TLS://127.0.0.1:{tls},MUTUAL://127.0.0.1:{mutual},SASL://127.0.0.1:{sasl}"
        plain = f"PLAINTEXT://127.0.0.1:{self._ports[number]}"
        controller = f"CONTROLLER://127.0.0.1:{self._controllers[number]}"
        return {
            "listeners": f"{plain},{controller},{secured}",
            "advertised.listeners": f"{plain},{secured}",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "TLS:SSL,MUTUAL:SSL,SASL:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            **{f"listener.name.sasl.{name}.sasl.jaas.config": text for name, text in _JAAS.items()},
        }


def _pems(issued: trustme.LeafCert) -> tuple[bytes, bytes]:
    """The key, as brokers read it, and the certificate."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return (
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        b"".join(blob.bytes() for blob in issued.cert_chain_pems),
    )


def _files(folder: Path, name: str, authority: trustme.CA) -> tuple[str, str]:
    """The paths of a certificate and its key."""
    key, certificate = _pems(authority.issue_cert(f"{name}.example.org"))
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_bytes(certificate)
    paths[1].write_bytes(key)
    return str(paths[0]), str(paths[1])
