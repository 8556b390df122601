"""The certificate of a server that is reached by HTTPS."""

import ssl

from jax_engine.errors import ConfigError


def tls_context(
    certfile: str | None, keyfile: str | None, ca_certs: str | None, cert_reqs: int
) -> ssl.SSLContext | None:
    """The server's side of TLS; None without a certificate.

    Args:
        certfile: PEM: the server's certificate, and those between it and its root.
        keyfile: PEM: its key; None: it is in `certfile`.
        ca_certs: PEM: who vouches for clients.
        cert_reqs: as `ssl.VerifyMode`: 0: clients have no certificate; 1: they may; 2: they must.

    Raises:
        ConfigError: a file is not there, or not what it should be.
    """
    if certfile is None:
        if keyfile or ca_certs or cert_reqs:
            raise ConfigError("--ssl-certfile is missing, which the other --ssl flags need")
        return None
    if cert_reqs and ca_certs is None:
        raise ConfigError(f"--ssl-cert-reqs {cert_reqs} needs --ssl-ca-certs")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certfile, keyfile, password=_no_password)
        if ca_certs is not None:
            context.load_verify_locations(ca_certs)
    except (OSError, ValueError) as error:
        files = ", ".join(filter(None, (certfile, keyfile, ca_certs)))
        raise ConfigError(f"the certificate cannot be read ({files}): {error}") from error
    context.verify_mode = ssl.VerifyMode(cert_reqs)
    return context


def _no_password() -> str:
    """In place of OpenSSL's, which asks at the terminal."""
    raise ValueError("the key has a password: give one without")
