"""The files of TLS, and reading them again when they change (`--enable-ssl-refresh`)."""

import asyncio
import logging
import os
import ssl
from dataclasses import dataclass

logger = logging.getLogger("jax_engine")
WATCH_S = 1.0


@dataclass(frozen=True)
class TlsFiles:
    """
    Attributes:
        certfile: PEM: the server's certificate, and those between it and its root.
        keyfile: PEM: its key; None: it is in `certfile`.
        ca_certs: PEM: who vouches for clients; None: nobody.
    """

    certfile: str
    keyfile: str | None = None
    ca_certs: str | None = None

    @property
    def paths(self) -> list[str]:
        """Those that there are."""
        return [one for one in (self.certfile, self.keyfile, self.ca_certs) if one]

    def load(self, context: ssl.SSLContext) -> None:
        """Reads them, for connections from now on.

        Raises:
            OSError, ValueError: a file is not there, or not what it should be.
        """
        context.load_cert_chain(self.certfile, self.keyfile, password=_no_password)
        if self.ca_certs is not None:
            context.load_verify_locations(self.ca_certs)

    async def refresh(self, context: ssl.SSLContext) -> None:
        """Reads them again whenever they have changed, until it is cancelled.

        Files that cannot be read, as of a certificate that came before its key, leave the context
        as it is, and are tried again when they change next.
        """
        known = self._stamps()
        while True:
            await asyncio.sleep(WATCH_S)
            found = self._stamps()
            if found != known:
                known = found
                self._reload(context)

    def _reload(self, context: ssl.SSLContext) -> None:
        try:
            self.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))  # bad files would spoil the other
            self.load(context)
        except (OSError, ValueError) as error:
            files = ", ".join(self.paths)
            logger.warning("the old certificate stays: %s cannot be read: %s", files, error)
        else:
            logger.info("the certificate has been read again: %s", self.certfile)

    def _stamps(self) -> list[tuple[int, ...] | None]:
        """What tells that a file has changed; None of one that is not there."""
        return [_stamp(one) for one in self.paths]


def _stamp(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _no_password() -> str:
    """In place of OpenSSL's, which asks at the terminal."""
    raise ValueError("the key has a password: give one without")
