"""A PostgreSQL server of the tests' own, in a temporary folder, run by a user without rights."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.serve.servers import free_port

INSTALL = "apt-get install postgresql && pip install '.[postgresql]'"


def programs() -> Path | None:
    """The folder of PostgreSQL's programs; Debian keeps them out of the path."""
    found = shutil.which("initdb")
    places = [*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return Path(found).resolve().parent if found else next(iter(places), None)


@contextmanager
def postgresql() -> Iterator[str]:
    """The address of a fresh server."""
    pytest.importorskip("psycopg", reason=f"needs PostgreSQL: {INSTALL}")
    where = programs()
    if where is None:
        pytest.skip(f"needs PostgreSQL: {INSTALL}")
    user = {}
    folder = Path(tempfile.mkdtemp(prefix="unsee-postgresql-"))
    if os.getuid() == 0:  # PostgreSQL refuses to be run by root
        owner = pwd.getpwnam("postgres" if _known("postgres") else "nobody")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = {"user": owner.pw_uid, "group": owner.pw_gid, "cwd": folder}
    port = free_port()
    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
    try:
        run = {"check": True, "stdout": subprocess.DEVNULL, **user}
        subprocess.run([where / "initdb", "-D", folder / "db", "-U", "unsee", "-A", "trust", "-N"], **run)
        control = [where / "pg_ctl", "-D", folder / "db", "-w"]
        subprocess.run([*control, "-l", folder / "log", "-o", options, "start"], **run)
        try:
            yield f"postgresql://unsee@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], **run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _known(name: str) -> bool:
    try:
        return bool(pwd.getpwnam(name))
    except KeyError:
        return False
