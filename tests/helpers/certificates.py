"""Certificates of the tests' own, by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def openssl(folder: Path, *words: str) -> None:
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


def certificates(folder: Path) -> Path:
    """Create an authority, a server's certificate for `localhost`, and another authority."""
    folder.mkdir(parents=True)
    for name in ("ca", "other"):
        out = ("-keyout", f"{name}.key", "-out", f"{name}.pem", "-subj", f"/CN={name}")
        openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *out)
    openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key",
            "-out", "server.csr", "-subj", "/CN=localhost")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost")
    openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", "2", "-out", "server.pem", "-extfile", "names")  # fmt: skip
    for path in [folder.parent, folder, *folder.iterdir()]:
        path.chmod(0o755)  # the server runs as another user
    return folder
