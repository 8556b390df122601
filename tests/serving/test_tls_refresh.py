"""Certificates that change while the server runs."""

import asyncio
import logging
import os
import shutil
import ssl
from pathlib import Path

import pytest

from jax_engine.serving.api import tls_files
from jax_engine.serving.api.tls_files import TlsFiles
from tests.support.patience import HANG_S

TLS = Path(__file__).parent / "tls"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TlsFiles:
    monkeypatch.setattr(tls_files, "WATCH_S", 0.01)
    for name in ("certificate.pem", "key.pem"):
        shutil.copy(TLS / name, tmp_path)
    certificate = tmp_path / "certificate.pem"
    return TlsFiles(str(certificate), str(tmp_path / "key.pem"), str(certificate))


async def until_logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    async with asyncio.timeout(HANG_S):
        while text not in caplog.text:
            await asyncio.sleep(0.005)


def test_files_are_read_again_when_they_have_changed(
    files: TlsFiles, caplog: pytest.LogCaptureFixture
) -> None:
    """A bad file leaves what there was; the next good one is taken."""
    caplog.set_level(logging.INFO, "jax_engine")
    loaded = []

    class Context(ssl.SSLContext):
        def load_cert_chain(self, *args: object, **options: object) -> None:  # type: ignore[override]
            super().load_cert_chain(*args, **options)  # type: ignore[arg-type]
            loaded.append(args)

    async def changes() -> None:
        context = Context(ssl.PROTOCOL_TLS_SERVER)
        files.load(context)
        watching = asyncio.ensure_future(files.refresh(context))
        await asyncio.sleep(0.05)
        assert len(loaded) == 1 and not caplog.records
        assert files.keyfile is not None
        os.replace(files.keyfile, f"{files.keyfile}.kept")
        await until_logged(caplog, "the old certificate stays")
        assert len(loaded) == 1
        os.replace(f"{files.keyfile}.kept", files.keyfile)
        await until_logged(caplog, "the certificate has been read again")
        assert len(loaded) == 2
        Path(files.certfile).write_text("nothing")
        caplog.clear()
        await until_logged(caplog, "the old certificate stays")
        assert len(loaded) == 2
        watching.cancel()

    asyncio.run(changes())


def test_a_certificate_may_have_its_key_with_it(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_text((TLS / "certificate.pem").read_text() + (TLS / "key.pem").read_text())
    files = TlsFiles(str(both))
    files.load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    assert files.paths == [str(both)]
